"""The HTTP API, one folder per noun (`nodes/`, `money/`, …): a handler reads the request, calls a service, replies.

Where is the reply of `GET /v1/nodes` defined? Search for that line: its handler is in `api/nodes/nodes.py`, and the
handler's annotation names the type of the reply. The types are in `protocol/api/<noun>.py`.

Where does a new endpoint go? The types of its body and reply into `protocol/api/<noun>.py`; its handler into a class of
`api/<noun>/`, declared by `@endpoint` (see `api/endpoint.py`); a new class into `gateway/routes.py`, with the few
collaborators that it needs; a row into `tests/integration/test_authorisation.py`. The OpenAPI document is made from the
declarations. No rule of the product lives here.
"""
