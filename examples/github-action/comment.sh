#!/bin/sh
# comment.sh FILE: writes FILE as a comment on the pull request, or updates the comment that it wrote before.
# Reads TOKEN, AUTHOR, KEY, PULL_REQUEST, and the variables of GitHub Actions.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
api="${GITHUB_API_URL:-https://api.github.com}/repos/$GITHUB_REPOSITORY"
marker="<!-- postrun compare $(printf %s "$KEY" | tr -c 'A-Za-z0-9._-' -) -->"
run="${GITHUB_SERVER_URL:-https://github.com}/$GITHUB_REPOSITORY/actions/runs/${GITHUB_RUN_ID:-}"

# request METHOD URL [curl's options]: the answer; curl reads the token from its standard input, so that no list of processes shows it.
request() {
  method=$1 url=$2
  shift 2
  printf 'header = "Authorization: Bearer %s"\n' "$TOKEN" |
    curl --config - --silent --show-error --fail-with-body --max-time 60 --request "$method" \
      --header "Accept: application/vnd.github+json" --header "X-GitHub-Api-Version: 2022-11-28" "$@" "$url"
}

jq -n --rawfile text "$1" --arg marker "$marker" --arg run "$run" \
  '{body: ($marker + "\n" + $text + "\n\nFiles and messages of the comparison: [this run](" + $run + ").\n")}' > "$work/body.json"

# Only a comment of our user counts: anybody can write the marker.
id= page=1 count=100
while [ -z "$id" ] && [ "$count" -eq 100 ]; do
  request GET "$api/issues/$PULL_REQUEST/comments?per_page=100&page=$page" --retry 3 > "$work/comments.json"
  id=$(jq -r --arg author "$AUTHOR" --arg marker "$marker" \
    'map(select(.user.login == $author and (.body | startswith($marker)))) | .[0].id // empty' "$work/comments.json")
  count=$(jq length "$work/comments.json")
  page=$((page + 1))
done

set -- --header "Content-Type: application/json" --data-binary "@$work/body.json"
if [ -n "$id" ]; then
  request PATCH "$api/issues/comments/$id" --retry 3 "$@" > "$work/answer.json"
else
  request POST "$api/issues/$PULL_REQUEST/comments" "$@" > "$work/answer.json"  # no retry, which could comment twice
fi
