"""OpenAI's requests, checked, and OpenAI's answers, built."""
