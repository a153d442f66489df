"""`python -m deploy.cli`: the command where no script is installed, as the launcher calls it."""

from deploy.cli.app import main

if __name__ == "__main__":
    main()
