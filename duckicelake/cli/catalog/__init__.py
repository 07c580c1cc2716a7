"""Commands that look at a lake over REST, and change it: a URL and a token are enough."""
