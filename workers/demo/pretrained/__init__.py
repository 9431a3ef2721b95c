"""The pretrained demo: agents from a small model of the hub, a folder or a package, and word problems for them."""
