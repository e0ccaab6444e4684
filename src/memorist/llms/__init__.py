"""Language models: providers, and the wrappers around them. Everything works without one."""
