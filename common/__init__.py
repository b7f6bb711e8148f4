"""What every tier shares: recognition, caching decisions, RPC, configuration, errors. Imports no tier."""
