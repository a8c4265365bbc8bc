//! `orlop token`: tokens of service accounts.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use orlop_client::{Api, api::PostParams};

use super::Administrator;

/// Tokens of service accounts.
#[derive(Debug, clap::Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a token of a service account.
    Create(Create),
}

#[derive(Debug, clap::Args)]
struct Create {
    /// Name of the service account.
    #[arg(value_name = "SERVICEACCOUNT")]
    account: String,

    /// Its namespace.
    #[arg(long, short, default_value = "default", value_name = "NAME")]
    namespace: String,

    /// Lifetime of the token. The server may shorten it.
    #[arg(long, default_value = "1h", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    duration: Duration,

    /// Audiences of the token [default: the API server's].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    audience: Vec<String>,

    #[command(flatten)]
    administrator: Administrator,
}

impl Token {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Command::Create(create) = self.command;
        let client = create.administrator.client().await?;
        let accounts =
            Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(client, &create.namespace);
        let seconds = i64::try_from(create.duration.as_secs()).unwrap_or(i64::MAX);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(create.audience),
                expiration_seconds: Some(seconds),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let issued = accounts
            .create_subresource::<_, TokenRequest>("token", &create.account, &PostParams::default(), &request)
            .await?;
        let token = issued.status.and_then(|status| status.token);
        println!("{}", token.context("the server answered without a token")?);
        Ok(())
    }
}
