"""Policies of other papers, a module each; docs/policies.md compares them."""
