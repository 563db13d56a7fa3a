"""Tokenfuse's rules as pure values and functions: no I/O, no clock, no settings."""
