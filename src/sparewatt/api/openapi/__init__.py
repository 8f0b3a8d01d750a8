"""The gateway's own API, as an OpenAPI document that is made from its routes."""
