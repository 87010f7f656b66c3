"""Group-relative policy optimisation (GRPO) on handwritten numbers, in numpy, in the shape of NeMo-RL.

A prompt is a number written by hand (a row of digit images), an answer one token a digit, and the
reward is 1 when the whole number is right, else 0. Nothing tells the policy which digit was wrong.
"""
