"""What the admission webhook answers. Pure: a review comes in, an answer goes out; `web/webhook.py` serves it."""
