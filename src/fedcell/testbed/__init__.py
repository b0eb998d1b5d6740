"""An emulated cell: network namespaces whose links are shaped to the plan's rates, with Flower's own nodes in them."""
