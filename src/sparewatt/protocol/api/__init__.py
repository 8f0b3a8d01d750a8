"""Every reply of the HTTP API, defined once. Handlers return these types and the command line decodes them; OpenAPI
and the page's TypeScript types are generated from them. One file per noun.
"""
