//! Certificates of a node that joins a cluster: it asks with CertificateSigningRequests, as a kubelet does.

use std::{fs, net::IpAddr, path::Path, time::Duration};

use anyhow::{Context, bail};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use orlop_client::{Api, Client, Config, Kubeconfig as ClientKubeconfig, ResourceExt, api::PostParams};
use orlop_net::ServerTls;
use orlop_server::auth::{
    kubeconfig::{self, Kubeconfig},
    pki::{self, Credential},
};
use orlop_store::private_files;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Remaining life at which the client certificate is replaced at a start.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Interval at which a request for a certificate is looked at, and the longest wait for a client certificate.
const POLL: Duration = Duration::from_millis(500);
const CLIENT_WAIT: Duration = Duration::from_secs(15 * 60);
/// Delay before a serving certificate is asked for again.
const RETRY: Duration = Duration::from_secs(60);

/// Returns the configuration of a node by the kubeconfig in its data directory. Without a valid one there it asks for a
/// certificate with the credentials of another, such as a bootstrap token.
pub(super) async fn own_config(bootstrap: &Path, data_dir: &Path, node: &str) -> anyhow::Result<Config> {
    let path = data_dir.join("kubeconfig");
    let known = fs::read_to_string(&path).unwrap_or_default();
    let own = kubeconfig::client_credential(&known).map(|credential| credential.certificate);
    let is_valid = |margin| own.as_deref().is_some_and(|certificate| pki::is_valid_for(certificate, margin));
    if is_valid(RENEWAL_MARGIN) {
        return Ok(Config::of(&ClientKubeconfig::read_from(&path)?)?);
    }
    // A certificate that is still valid asks for its successor itself.
    let asking = if is_valid(Duration::ZERO) { &path } else { bootstrap };
    let config = Config::of(&ClientKubeconfig::read_from(asking)?)?;
    let (server, trusted) =
        (config.server().to_owned(), config.root_ca().context("the kubeconfig has no CA")?);
    let client = Client::connect(config).await?;
    let request = pki::Request::new(&format!("system:node:{node}"), "system:nodes", &[], &[])?;
    let issued = tokio::time::timeout(CLIENT_WAIT, ask(&client, CLIENT_SIGNER, "client auth", request)).await;
    let certificate = issued.context("nobody approved the certificate of this node in time")??;
    let yaml = Kubeconfig {
        server: &server,
        trusted: &trusted,
        server_name: None,
        certificate: &certificate,
        token: None,
    };
    fs::create_dir_all(data_dir).with_context(|| data_dir.display().to_string())?;
    private_files::write(&path, yaml.to_yaml().as_bytes()).with_context(|| path.display().to_string())?;
    Ok(Config::of(&ClientKubeconfig::read_from(&path)?)?)
}

/// Replaces the serving certificate of a node by one that the cluster signs, once somebody approves it.
pub(super) async fn keep_serving_certificate(client: Client, node: String, address: IpAddr, tls: ServerTls) {
    loop {
        let issued = async {
            let name = format!("system:node:{node}");
            let request = pki::Request::new(&name, "system:nodes", std::slice::from_ref(&node), &[address])?;
            let issued = ask(&client, SERVING_SIGNER, "server auth", request).await?;
            let (certificate, key) = issued.to_sources();
            tls.replace(certificate, key)?;
            Ok::<_, anyhow::Error>(issued)
        };
        match issued.await {
            Ok(issued) => {
                tracing::info!("the node serves with a certificate of the cluster");
                while pki::is_valid_for(&issued.certificate, RENEWAL_MARGIN) {
                    tokio::time::sleep(Duration::from_secs(60 * 60)).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot get a serving certificate; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Asks a signer of the cluster for a certificate, and waits for it.
async fn ask(
    client: &Client,
    signer: &str,
    usage: &str,
    request: pki::Request,
) -> anyhow::Result<Credential> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.pem.into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let created = requests.create(&PostParams::default(), &object).await?;
    let name = created.name_any();
    tracing::info!(name, signer, "asked for a certificate");
    loop {
        tokio::time::sleep(POLL).await;
        let Some(found) = requests.get_opt(&name).await? else { bail!("the request {name} was deleted") };
        let status = found.status.unwrap_or_default();
        if let Some(certificate) = status.certificate.filter(|certificate| !certificate.0.is_empty()) {
            return Ok(Credential { certificate: String::from_utf8(certificate.0)?, key: request.key });
        }
        let refused = status.conditions.into_iter().flatten();
        let mut refused = refused.filter(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
        if let Some(refused) = refused.next() {
            bail!("the request {name} was refused: {}", refused.message.unwrap_or(refused.type_));
        }
    }
}
