"""The embedded AWS: the same CDK app on one machine (docs/how-to/local.md).

environment   what the command line calls: up, down, status, environment
process       start and stop the server; server/localaws is what runs inside it
install       its environment .localaws
synth         run the CDK app, unless nothing changed
deploy        bring a synthesised stack to it through the CloudFormation API
"""
