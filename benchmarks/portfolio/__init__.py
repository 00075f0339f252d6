"""Which members, which combination and which rule the default portfolio should use."""
