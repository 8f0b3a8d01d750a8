"""Every reply of the HTTP API, once: handlers return these types, the command line reads them, OpenAPI and the page's
TypeScript types are generated from them. One file per noun, as in `api/`.
"""
