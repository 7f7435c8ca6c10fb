"""`python -m dkl`: the `dkl` command."""

from dkl.cli.main import main

if __name__ == "__main__":
    main()
