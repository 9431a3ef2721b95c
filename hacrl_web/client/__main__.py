"""python -m hacrl_web.client: the `hacrl` command."""

from hacrl_web.client.main import main

main()
