"""Obey the signed Tokenfuse policy inside the request path; standard library only."""
