"""The Model Context Protocol: `memorist mcp` over stdio, and `/mcp` of the server."""
