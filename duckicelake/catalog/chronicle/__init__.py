"""What happened in the lake, in its order: folded into the chronicle, and told to who follows it."""
