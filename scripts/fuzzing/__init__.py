"""Readers, what they are given, and how it is damaged."""
