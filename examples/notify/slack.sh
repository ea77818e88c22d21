#!/bin/sh
# Tell a Slack channel of an incident:
#   export SLACK_WEBHOOK_FILE=~/.slack-webhook     # holds the URL; mode 0600
#   relkit launch --on-incident /path/to/slack.sh ...
# Mattermost, Rocket.Chat and Discord (URL/slack) take the same message. Needs curl and python3.
set -eu
url=${SLACK_WEBHOOK_URL:-}
[ -n "$url" ] || url=$(cat "${SLACK_WEBHOOK_FILE:?names no file with the URL of the webhook}")
message=$(python3 -c '
import json, sys
incident = json.load(sys.stdin)
reasons = "\n".join("- " + each for each in incident["report"]["findings"][0].get("reasons", [])[:3])
text = "*{kind}* in job `{job_id}` on {host}: {title}\n{0}\nreport: {report_path}"
print(json.dumps({"text": text.format(reasons, **incident)}))
')
# The URL is a secret: curl reads it from its own input, and no list of processes shows it.
printf 'url = "%s"\n' "$url" |
    curl --config - --silent --show-error --fail --max-time 20 --output /dev/null \
        --header 'Content-Type: application/json' --data-raw "$message"
