"""What names a generator of questions, the same for pages and trainers. It does not know the package that has them."""
