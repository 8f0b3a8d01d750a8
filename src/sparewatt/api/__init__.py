"""The HTTP API, one folder per noun: a handler reads the request, calls a service, returns a type of protocol/api/."""
