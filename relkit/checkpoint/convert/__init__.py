"""Weights in another form: Megatron's torch layout of any degrees, and Hugging Face's folders."""
