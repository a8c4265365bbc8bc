//! Credentials of a node that joins a cluster: it requests them with CertificateSigningRequests, as a kubelet does, and follows
//! rotations of the cluster's CA.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use futures_util::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec, ClusterTrustBundle},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use orlop_client::{
    Api, Client, Config, ConfigError, ResourceExt,
    api::PostParams,
    watch_kind,
    watcher::{self, Event},
};
use orlop_net::ServerTls;
use orlop_server::auth::{
    kubeconfig::{self, Kubeconfig},
    pki::{self, Credential},
};
use orlop_store::private_files;
use tokio::sync::watch;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Signer of API servers' certificates.
const SERVERS_SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
/// Remaining life at which a certificate is replaced, and the interval at which it is checked.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// Interval at which a request for a certificate is polled, and the longest wait for a client certificate.
const POLL: Duration = Duration::from_millis(500);
const CLIENT_WAIT: Duration = Duration::from_secs(15 * 60);
/// Delay before a certificate is requested again.
const RETRY: Duration = Duration::from_secs(60);

/// The kubeconfig of a node with credentials of its own, in its data directory.
#[derive(Clone, Debug)]
pub(super) struct OwnKubeconfig {
    path: PathBuf,
    node: String,
}

impl OwnKubeconfig {
    pub(super) fn new(data_dir: &Path, node: &str) -> Self {
        Self { path: data_dir.join("kubeconfig"), node: node.to_owned() }
    }

    /// Reads the file.
    pub(super) fn read(&self) -> Result<Config, ConfigError> {
        Config::read_from(&self.path)
    }

    fn credential(&self) -> Option<Credential> {
        kubeconfig::client_credential(&fs::read_to_string(&self.path).unwrap_or_default())
    }

    /// Makes sure that the file holds valid credentials. Without them, it requests a certificate with those of another
    /// kubeconfig, such as a bootstrap token.
    pub(super) async fn ensure(&self, bootstrap: &Path) -> anyhow::Result<()> {
        let own = self.credential().map(|credential| credential.certificate);
        let is_valid =
            |margin| own.as_deref().is_some_and(|certificate| pki::is_valid_for(certificate, margin));
        if is_valid(RENEWAL_MARGIN) {
            return Ok(());
        }
        // A certificate that is still valid requests its successor itself.
        let requester = if is_valid(Duration::ZERO) { &self.path } else { bootstrap };
        let config = Config::read_from(requester)?;
        let trusted = config.root_ca().context("the kubeconfig has no CA")?;
        let server = config.server().to_owned();
        let credential = self.request(&Client::connect(config).await?).await?;
        self.write(&server, &trusted, &credential)
    }

    /// Requests a client certificate.
    async fn request(&self, client: &Client) -> anyhow::Result<Credential> {
        let request = pki::Request::new(&format!("system:node:{}", self.node), "system:nodes", &[], &[])?;
        let issued = request_certificate(client, CLIENT_SIGNER, "client auth", request);
        let issued = tokio::time::timeout(CLIENT_WAIT, issued).await;
        issued.context("nobody approved the certificate of this node in time")?
    }

    fn write(&self, server: &str, trusted: &str, certificate: &Credential) -> anyhow::Result<()> {
        let yaml = Kubeconfig { server, trusted, server_name: None, certificate, token: None };
        if let Some(folder) = self.path.parent() {
            private_files::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        private_files::write(&self.path, yaml.to_yaml().as_bytes())
            .with_context(|| self.path.display().to_string())
    }

    /// Keeps the CAs and the certificate of the file current, for ever. CAs are those of the ClusterTrustBundle of API
    /// servers; a certificate is renewed before it expires, and when another CA signs.
    pub(super) async fn renew(&self, client: Client) {
        let mut bundles = TrustBundles::watch(&client);
        // Signing CA for which a certificate was requested last: one request for each, whoever signs in the end.
        let mut requested_of = String::new();
        loop {
            let published = bundles.current().map(str::to_owned);
            let renewed = tokio::select! {
                renewed = self.renew_once(&client, published.as_deref(), &mut requested_of) => renewed,
                // Nobody may approve a request for a long time: the CAs come first.
                () = bundles.changed() => continue,
            };
            let pause = match renewed {
                Ok(()) => RENEWAL_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "cannot renew the credentials of this node; trying again");
                    RETRY
                }
            };
            tokio::select! {
                () = bundles.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn renew_once(
        &self,
        client: &Client,
        published: Option<&str>,
        requested_of: &mut String,
    ) -> anyhow::Result<()> {
        let config = self.read()?;
        let (server, mut trusted) = (config.server().to_owned(), config.root_ca().unwrap_or_default());
        let mut credential = self.credential().context("the kubeconfig has no client certificate")?;
        // Others, such as those of a proxy in front of the servers, are somebody else's to change.
        let is_successor =
            |new: &&str| new.trim() != trusted.trim() && pki::share_a_certificate(new, &trusted);
        if let Some(new) = published.filter(is_successor) {
            trusted = new.to_owned();
            self.write(&server, &trusted, &credential)?;
            tracing::info!("took over the CAs of the cluster");
        }
        let signing = pki::first_certificate(&trusted).to_owned();
        let is_current = pki::is_client_of(&signing, &credential, Duration::ZERO) || *requested_of == signing;
        if is_current && pki::is_valid_for(&credential.certificate, RENEWAL_MARGIN) {
            return Ok(());
        }
        credential = self.request(client).await?;
        *requested_of = signing;
        self.write(&server, &trusted, &credential)?;
        tracing::info!("renewed the client certificate of this node");
        Ok(())
    }
}

/// Replaces the serving certificate of a node by one that the cluster signs, once somebody approves it. `trusted` are the CAs
/// of the cluster, of which the first one signs.
pub(super) async fn renew_serving_certificate(
    client: Client,
    node: String,
    address: IpAddr,
    tls: ServerTls,
    mut trusted: watch::Receiver<String>,
) {
    loop {
        let signing = pki::first_certificate(&trusted.borrow_and_update()).to_owned();
        let issued = async {
            let name = format!("system:node:{node}");
            let request = pki::Request::new(&name, "system:nodes", std::slice::from_ref(&node), &[address])?;
            let issued = request_certificate(&client, SERVING_SIGNER, "server auth", request).await?;
            let (certificate, key) = issued.to_sources();
            tls.replace(certificate, key)?;
            Ok::<_, anyhow::Error>(issued)
        };
        match issued.await {
            Ok(issued) => {
                tracing::info!("the node serves with a certificate of the cluster");
                while pki::is_valid_for(&issued.certificate, RENEWAL_MARGIN)
                    && signing == pki::first_certificate(&trusted.borrow_and_update())
                {
                    let _ = tokio::time::timeout(RENEWAL_INTERVAL, trusted.changed()).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot get a serving certificate; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// ClusterTrustBundles of API servers, as a watch reports them.
struct TrustBundles {
    events: BoxStream<'static, watcher::Result<Event<ClusterTrustBundle>>>,
    /// Version and certificates of the newest one: a successor is published before its predecessor is deleted.
    newest: Option<(u64, String)>,
}

impl TrustBundles {
    fn watch(client: &Client) -> Self {
        let bundles: Api<ClusterTrustBundle> = Api::all(client.clone());
        let selected = watcher::Config::default().fields(&format!("spec.signerName={SERVERS_SIGNER}"));
        Self { events: watch_kind(&bundles, selected), newest: None }
    }

    fn current(&self) -> Option<&str> {
        self.newest.as_ref().map(|(_, certificates)| certificates.as_str())
    }

    /// Waits until other certificates are published.
    async fn changed(&mut self) {
        while let Some(event) = self.events.next().await {
            let bundle = match event {
                Ok(Event::Apply(bundle) | Event::InitApply(bundle)) => bundle,
                Ok(_) => continue,
                // A server of an older version does not have the kind.
                Err(error) => {
                    tracing::debug!(%error, "cannot watch the ClusterTrustBundle of API servers");
                    continue;
                }
            };
            let version = bundle.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0);
            if self.newest.as_ref().is_none_or(|(newest, _)| version > *newest) {
                self.newest = Some((version, bundle.spec.trust_bundle));
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Requests a certificate of a signer of the cluster, and waits for it.
async fn request_certificate(
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
    tracing::info!(name, signer, "requested a certificate");
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
