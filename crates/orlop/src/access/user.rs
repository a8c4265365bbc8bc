//! `orlop user`: users with client certificates.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use orlop_client::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use orlop_server::auth::{certificate_request::ClientKey, signers::API_SERVER_CLIENT};
use serde_json::json;

use super::{Administrator, to_yaml, write_or_print};

/// Limit on the wait for a certificate.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  orlop user add ann --group dev --group ops --output ann.kubeconfig
      Writes a kubeconfig with a new client certificate. What ann may do is up to RBAC:
  kubectl create clusterrolebinding dev --clusterrole=edit --group=dev";

/// Users with client certificates.
#[derive(Debug, clap::Args)]
pub(crate) struct User {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Issue a client certificate and write a kubeconfig with it.
    #[command(after_long_help = EXAMPLES)]
    Add(Add),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The user's name.
    name: String,

    /// A group of the user. May be repeated.
    #[arg(long = "group", short, value_name = "NAME")]
    groups: Vec<String>,

    /// Lifetime of the certificate, a year at most.
    #[arg(long, default_value = "8760h", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    expiration: Duration,

    /// File to write, mode 0600, instead of printing.
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,

    #[command(flatten)]
    administrator: Administrator,
}

impl User {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Command::Add(add) = self.command;
        if add.name.is_empty() || add.groups.iter().any(String::is_empty) {
            bail!("names of users and groups must not be empty");
        }
        let key = ClientKey::generate(&add.name, &add.groups).map_err(anyhow::Error::msg)?;
        let client = add.administrator.client().await?;
        let certificate = certificate(client, &key.request, add.expiration).await?;
        let encode = orlop_server::auth::kubeconfig::encode;
        let kubeconfig = add.administrator.read()?.with_user(
            &add.name,
            &encode(&certificate),
            &encode(key.key.as_bytes()),
        );
        let kubeconfig = kubeconfig.context("the kubeconfig has no current context")?;
        write_or_print(add.output.as_deref(), &to_yaml(&kubeconfig)?)
    }
}

/// Requests a certificate, approves it, and waits for it. The request is deleted afterwards.
async fn certificate(client: Client, request: &str, expiration: Duration) -> anyhow::Result<Vec<u8>> {
    let requests = Api::<CertificateSigningRequest>::all(client);
    let usages = ["digital signature", "key encipherment", "client auth"].map(str::to_owned);
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("orlop-user-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.as_bytes().to_vec()),
            signer_name: API_SERVER_CLIENT.to_owned(),
            usages: Some(usages.into()),
            expiration_seconds: i32::try_from(expiration.as_secs()).ok(),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let created = requests.create(&PostParams::default(), &object).await?;
    let name = created.metadata.name.context("the server answered without a name")?;
    let uid = created.metadata.uid.context("the server answered without a uid")?;
    let issued = tokio::time::timeout(TIMEOUT, approve_and_wait(&requests, &name, &uid)).await;
    let _ = requests.delete(&name, &DeleteParams::default()).await;
    issued
        .context("no certificate was issued: is the certificatesigningrequest-signing-controller running?")?
}

async fn approve_and_wait(
    requests: &Api<CertificateSigningRequest>,
    name: &str,
    uid: &str,
) -> anyhow::Result<Vec<u8>> {
    // Of this request, and not of one that somebody puts in its place.
    let approved = json!({"metadata": {"uid": uid}, "status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "OrlopUserAdd", "message": "orlop user add",
    }]}});
    let options = PatchParams::default();
    let _: CertificateSigningRequest =
        requests.patch_subresource("approval", name, &options, &Patch::Merge(approved)).await?;
    loop {
        let status = requests.get(name).await?.status.unwrap_or_default();
        if let Some(certificate) = status.certificate.filter(|certificate| !certificate.0.is_empty()) {
            return Ok(certificate.0);
        }
        let failed =
            status.conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == "Failed");
        if let Some(failed) = failed {
            bail!("the certificate was refused: {}", failed.message.unwrap_or_default());
        }
        tokio::time::sleep(POLL).await;
    }
}
