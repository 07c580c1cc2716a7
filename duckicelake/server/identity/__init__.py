"""Who makes a request: tokens, logins with secrets and of OpenID Connect providers, and those that fail."""
