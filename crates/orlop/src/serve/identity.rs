//! The server's identity: the cluster's shared secrets, its own certificate, the administrator's credentials.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use orlop_controllers::{Signers, certificate_signing};
use orlop_net::{ClientVerifier, PemSource, ServerTls};
use orlop_server::{
    TokenDigest, Tokens, User,
    auth::{
        identity::{self, ClusterKey, ClusterSecrets, Rotation},
        issuer::Issuer,
        jose::PublicKey,
        kubeconfig::{self, Kubeconfig, Secret},
        pki::{self, Authority, Credential},
        signers,
    },
    proxy::NodeTls,
};
use orlop_store::{Store, private_files};
use tokio::task::JoinHandle;

use super::{
    data_dir::DataDir,
    trust::{Kubelet, MetricsTls, RENEWAL_MARGIN, SharedTrust, Trust},
};
use crate::private_key::refuse_if_public;

/// DNS names under which clients inside a cluster reach its API server.
const NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
/// Common name of this server towards extension API servers.
pub(super) const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// Files and names that a user passes.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Key that the cluster's shared secrets in the database are encrypted with [default: DATA_DIR/cluster.key,
    /// generated with a new cluster]. To join a cluster, copy it from one of its servers.
    #[arg(long, env = "ORLOP_CLUSTER_KEY_FILE", value_name = "PATH", help_heading = "Trust")]
    cluster_key_file: Option<PathBuf>,

    /// Serving certificate (PEM, with its chain) to use instead of one that the cluster's CA issues. The file is
    /// followed.
    #[arg(long, requires = "tls_key_file", value_name = "PATH", help_heading = "Trust")]
    tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of the serving certificate.
    #[arg(
        long,
        visible_alias = "tls-private-key-file",
        requires = "tls_cert_file",
        value_name = "PATH",
        help_heading = "Trust"
    )]
    tls_key_file: Option<PathBuf>,

    /// Subject alternative names of the serving certificate, besides localhost and the listen address.
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = "Trust")]
    tls_san: Vec<String>,

    /// CAs (PEM) that certificates of nodes are verified by; "cluster" for the cluster's own. Without, they are not
    /// verified, as by kube-apiserver.
    #[arg(long, value_name = "PATH", help_heading = "Trust")]
    kubelet_certificate_authority: Option<PathBuf>,
}

/// Everything about trust that a server needs. Not `Debug`: it holds secrets.
pub(super) struct Identity {
    secrets: ClusterSecrets,
    key: Arc<ClusterKey>,
    authority: Authority,
    serving: Credential,
    /// Certificate towards nodes.
    node_client: Credential,
    /// CAs that certificates of nodes are verified by, as `--kubelet-certificate-authority` says.
    kubelet_ca: Option<PathBuf>,
    /// Names and addresses of a serving certificate of the cluster's CA.
    names: ServingNames,
    /// Files of the serving certificate and its key, if they are the user's.
    serving_files: Option<(PathBuf, PathBuf)>,
    /// The administrator's token, on the server that has it.
    admin_token: Option<String>,
    /// Digest and user of the administrator's token.
    pub(super) tokens: Vec<(TokenDigest, User)>,
    /// CAs of clients and servers, PEM. The first one signs.
    trusted_cas: String,
    /// File of the CAs.
    ca_file: PathBuf,
    /// Content of that file.
    ca_file_content: Option<String>,
    /// File of the administrator's token.
    pub(super) token_file: PathBuf,
    /// File of the cluster key.
    pub(super) key_file: PathBuf,
    /// Certificates (PEM) that clients verify the server by.
    pub(super) root_ca: String,
    /// Files that are being written.
    writes: Vec<JoinHandle<anyhow::Result<()>>>,
}

/// Names and addresses that clients reach a server by.
struct ServingNames {
    addresses: Vec<IpAddr>,
    sans: Vec<String>,
}

impl Identity {
    /// Loads the cluster's secrets from the database. In a new cluster creates them, from the files in the data
    /// directory as far as there are any.
    pub(super) async fn load(
        data_dir: &DataDir,
        store: &Store,
        addresses: &[IpAddr],
        options: &Options,
    ) -> anyhow::Result<Self> {
        let files = Files::read(data_dir)?;
        let (key, generated) = cluster_key(data_dir, store, options).await?;
        let token_file = data_dir.join("pki/admin.token");
        let mut admin_token = files.admin_token.clone();
        let loaded = identity::load_or_create(store, &key, || -> anyhow::Result<_> {
            let ca = files.ca()?;
            let service_account_key = files.service_account_key()?;
            let token = match admin_token.clone() {
                Some(token) => token,
                None => generate_token(data_dir, &token_file)?,
            };
            admin_token = Some(token.clone());
            Ok(ClusterSecrets::generate(ca, service_account_key, &token)?)
        })
        .await;
        let lost_race = matches!(&loaded, Err(error) if matches!(error.downcast_ref(), Some(identity::Error::WrongKey { .. })));
        if generated && lost_race {
            // Another server has created the cluster meanwhile: what was generated here is of no use.
            let _ = fs::remove_file(key.path());
            if files.admin_token.is_none() {
                let _ = fs::remove_file(&token_file);
            }
        }
        let (secrets, created) = loaded?;
        if !created && files.admin_token.is_none() {
            admin_token = None;
        }
        files.check(&secrets)?;
        let serving_files = options.tls_cert_file.clone().zip(options.tls_key_file.clone());
        let authority = load_authority(&secrets)?;
        let names = ServingNames { addresses: addresses.to_vec(), sans: options.tls_san.clone() };
        let serving = match &serving_files {
            Some((certificate, key)) => {
                refuse_if_public(key)?;
                Credential { certificate: read(certificate)?, key: read(key)? }
            }
            None => names.issue(&authority)?,
        };
        let key_file = key.path().to_owned();
        let mut identity = Self {
            node_client: issue_node_client(&authority)?,
            kubelet_ca: options.kubelet_certificate_authority.clone(),
            authority,
            serving,
            names,
            serving_files,
            admin_token,
            tokens: vec![(secrets.admin_token_digest, User::master("kubernetes-admin"))],
            trusted_cas: String::new(),
            root_ca: String::new(),
            ca_file: data_dir.join("pki/ca.crt"),
            ca_file_content: files.ca_certificate.clone(),
            secrets,
            key: Arc::new(key),
            token_file,
            key_file,
            writes: Vec::new(),
        };
        identity.set_cas();
        identity.write_ca(data_dir);
        Ok(identity)
    }

    fn set_cas(&mut self) {
        self.trusted_cas = self.secrets.trusted_cas();
        self.root_ca.clone_from(&self.trusted_cas);
        if self.serving_files.is_some() {
            self.root_ca.push_str(&self.serving.certificate);
        }
    }

    /// Takes over the cluster's secrets after a step of a rotation. A new CA issues new certificates.
    pub(super) fn adopt(&mut self, secrets: ClusterSecrets) -> anyhow::Result<()> {
        let authority = load_authority(&secrets)?;
        let is_new_ca = secrets.ca != self.secrets.ca;
        self.authority = authority;
        self.secrets = secrets;
        if is_new_ca {
            self.issue()?;
        }
        self.set_cas();
        Ok(())
    }

    /// Issues new certificates unless the present ones are valid for `margin`. Returns true if it did.
    pub(super) fn renew_if_due(&mut self, margin: Duration) -> anyhow::Result<bool> {
        // All are issued together, and for the same time.
        let is_due = !pki::is_valid_for(&self.node_client.certificate, margin);
        if is_due {
            self.issue()?;
        }
        Ok(is_due)
    }

    fn issue(&mut self) -> anyhow::Result<()> {
        if self.serving_files.is_none() {
            self.serving = self.names.issue(&self.authority)?;
        }
        self.node_client = issue_node_client(&self.authority)?;
        Ok(())
    }

    /// Begins to write the CAs to their file, unless it has them.
    pub(super) fn write_ca(&mut self, data_dir: &DataDir) {
        if self.ca_file_content.as_deref().map(str::trim) != Some(self.trusted_cas.trim()) {
            self.writes.push(data_dir.start_write(self.ca_file.clone(), self.trusted_cas.clone()));
            self.ca_file_content = Some(self.trusted_cas.clone());
        }
    }

    /// Returns the cluster key.
    pub(super) fn key(&self) -> &Arc<ClusterKey> {
        &self.key
    }

    /// Returns the cluster's secrets.
    pub(super) fn secrets(&self) -> &ClusterSecrets {
        &self.secrets
    }

    /// Returns the CAs that are in use.
    pub(super) fn trust(&self) -> anyhow::Result<Trust> {
        Ok(Trust {
            authority: load_authority(&self.secrets)?,
            client_ca: self.trusted_cas.clone(),
            front_proxy_ca: self.secrets.trusted_front_proxy_cas(),
            retired: self.secrets.retired(),
        })
    }

    /// Returns the cluster's own issuer of service account tokens.
    pub(super) fn issuer(&self) -> anyhow::Result<Issuer> {
        let context = "the cluster's service account key in the database cannot be used";
        let issuer = Issuer::from_pem(&self.secrets.service_account_key).context(context)?;
        let Some(others) = self.secrets.accepted_service_account_keys() else { return Ok(issuer) };
        Ok(issuer.with_keys(PublicKey::all_from_pem(others.as_bytes()).context(context)?))
    }

    /// Returns the cluster's CA certificates.
    pub(super) fn ca(&self) -> &str {
        &self.trusted_cas
    }

    /// Returns the TLS configuration to serve with. A user's certificate follows its files.
    pub(super) fn tls(&self, verifiers: Vec<Arc<ClientVerifier>>) -> anyhow::Result<ServerTls> {
        let (certificate, key) = match &self.serving_files {
            Some((certificate, key)) => (PemSource::File(certificate.clone()), PemSource::File(key.clone())),
            None => self.serving.to_sources(),
        };
        Ok(pki::server_tls_with(certificate, key, verifiers).map_err(pki::Error::from)?)
    }

    /// Returns the serving certificate, if the cluster's CA has issued it.
    pub(super) fn own_serving(&self) -> Option<&Credential> {
        self.serving_files.is_none().then_some(&self.serving)
    }

    /// Returns a client certificate towards extension API servers.
    pub(super) fn front_proxy_client(&self) -> anyhow::Result<Credential> {
        let authority = Authority::load(self.secrets.front_proxy_ca.clone())
            .context("the cluster's front proxy CA in the database cannot be used")?;
        Ok(authority.client(FRONT_PROXY_CLIENT, "")?)
    }

    /// Returns the TLS of this server towards nodes.
    pub(super) fn node_tls(&self) -> anyhow::Result<NodeTls> {
        let ca = match &self.kubelet_ca {
            Some(path) if path.as_os_str() == "cluster" => Some(self.trusted_cas.clone()),
            Some(path) => Some(read(path)?),
            None => None,
        };
        Ok(NodeTls::new(&self.node_client, ca.as_deref())?)
    }

    /// Returns a certificate of a node's own API.
    pub(super) fn kubelet_certificate(&self, name: &str, address: IpAddr) -> anyhow::Result<Credential> {
        Ok(self.authority.server(&[name.to_owned()], &[address])?)
    }

    /// Returns the TLS of a node's own API.
    pub(super) fn kubelet(&self, name: String, address: IpAddr) -> anyhow::Result<Kubelet> {
        let verifier = Arc::new(ClientVerifier::new(vec![PemSource::Inline(self.trusted_cas.clone())])?);
        let (certificate, key) = self.kubelet_certificate(&name, address)?.to_sources();
        let tls = pki::server_tls_with(certificate, key, vec![verifier.clone()]).map_err(pki::Error::from)?;
        Ok(Kubelet { tls, verifier, name, address })
    }

    /// Returns the TLS of the resource metrics API, which lets in clients of the front proxy's CA.
    pub(super) fn metrics_tls(&self, address: Ipv4Addr) -> anyhow::Result<MetricsTls> {
        let serving = self.authority.server(&[orlop_metrics::SERVER_NAME.to_owned()], &[address.into()])?;
        let verifier = Arc::new(ClientVerifier::new(self.front_proxy_cas())?);
        let (certificate, key) = serving.to_sources();
        let tls = pki::server_tls_with(certificate, key, vec![verifier.clone()]).map_err(pki::Error::from)?;
        Ok(MetricsTls { tls, verifier })
    }

    /// Returns the CAs of API servers' certificates towards extension API servers.
    pub(super) fn front_proxy_cas(&self) -> Vec<PemSource> {
        vec![PemSource::Inline(self.secrets.trusted_front_proxy_cas())]
    }

    /// Returns whether this server knows the administrator's token.
    pub(super) fn has_admin_token(&self) -> bool {
        self.admin_token.is_some()
    }

    /// Waits until the files are written.
    pub(super) async fn written(&mut self) -> anyhow::Result<()> {
        for write in self.writes.drain(..) {
            write.await??;
        }
        Ok(())
    }

    /// Begins to write the administrator's kubeconfig, unless the file says the same already. Its certificate is kept
    /// while it is valid.
    pub(super) fn write_kubeconfig(
        &mut self,
        data_dir: &DataDir,
        path: &Path,
        server: SocketAddr,
    ) -> anyhow::Result<()> {
        let current = match fs::read_to_string(path) {
            Ok(current) => {
                private_files::restrict(path).with_context(|| path.display().to_string())?;
                current
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let certificate = kubeconfig::client_credential(&current)
            .filter(|client| self.authority.is_client_valid(client, RENEWAL_MARGIN))
            .map_or_else(|| self.authority.client("kubernetes-admin", "system:masters"), Ok)?;
        let server_name = pki::name_for(&self.serving.certificate, server.ip());
        let kubeconfig = Kubeconfig {
            server: &format!("https://{server}"),
            trusted: &self.root_ca,
            server_name: server_name.as_deref(),
            certificate: &certificate,
            token: self.admin_token.as_deref().map(Secret),
        };
        let wanted = kubeconfig.to_yaml();
        if wanted != current {
            self.writes.push(data_dir.start_write(path.to_owned(), wanted));
        }
        Ok(())
    }
}

/// Returns the signers of credentials that controllers hand out.
pub(super) fn signers(trust: &SharedTrust, issuer: Arc<Issuer>) -> Signers {
    let trust = trust.clone();
    let certificate = move |request: &certificate_signing::Request| {
        let authority = &trust.load().authority;
        signers::sign(authority, &request.signer, &request.pem, &request.usages, request.lifetime)
    };
    let token = move |claims: &serde_json::Value| issuer.sign(claims).map_err(|error| error.to_string());
    Signers {
        token: Some(Arc::new(token)),
        certificate: Some(Arc::new(certificate)),
        recognize_kubelet: Some(Arc::new(signers::kubelet_client)),
    }
}

fn load_authority(secrets: &ClusterSecrets) -> anyhow::Result<Authority> {
    Authority::load(secrets.ca.clone()).context("the cluster's CA in the database cannot be used")
}

/// Issues the certificate towards nodes. Its user may use their APIs by a role, and is no administrator: a node names its own
/// address, which may be that of an API server.
fn issue_node_client(authority: &Authority) -> anyhow::Result<Credential> {
    Ok(authority.client("kube-apiserver-kubelet-client", "")?)
}

/// Reads the cluster key. Generates one for a new cluster, and returns whether it did.
async fn cluster_key(
    data_dir: &DataDir,
    store: &Store,
    options: &Options,
) -> anyhow::Result<(ClusterKey, bool)> {
    if let Some(path) = &options.cluster_key_file {
        refuse_if_public(path)?;
        return Ok((ClusterKey::read(path)?, false));
    }
    let path = data_dir.join("cluster.key");
    if path.try_exists().with_context(|| path.display().to_string())? {
        return Ok((ClusterKey::read(&path)?, false));
    }
    if identity::has_secrets(store).await? {
        bail!(
            "the database holds a cluster, and its key is not here ({} does not exist): copy cluster.key from a \
             server of the cluster and pass it with --cluster-key-file",
            path.display()
        );
    }
    Ok((ClusterKey::generate(&path, |content| data_dir.write(&path, content))?, true))
}

/// Files in the data directory with secrets that a new cluster takes over.
struct Files {
    ca_path: PathBuf,
    ca_certificate: Option<String>,
    ca_key_path: PathBuf,
    ca_key: Option<String>,
    service_account_key_path: PathBuf,
    service_account_key: Option<String>,
    admin_token_path: PathBuf,
    admin_token: Option<String>,
}

impl Files {
    fn read(data_dir: &DataDir) -> anyhow::Result<Self> {
        let (ca_path, ca_key_path) = (data_dir.join("pki/ca.crt"), data_dir.join("pki/ca.key"));
        let service_account_key_path = data_dir.join("pki/sa.key");
        let admin_token_path = data_dir.join("pki/admin.token");
        let admin_token = read_optional(&admin_token_path)?.map(|token| token.trim().to_owned());
        if admin_token.as_deref() == Some("") {
            bail!("{} is empty: remove it, or restore the administrator's token", admin_token_path.display());
        }
        Ok(Self {
            ca_certificate: read_optional(&ca_path)?,
            ca_path,
            ca_key: read_optional(&ca_key_path)?,
            ca_key_path,
            service_account_key: read_optional(&service_account_key_path)?,
            service_account_key_path,
            admin_token,
            admin_token_path,
        })
    }

    /// Returns the CA for a new cluster. Half a CA is an error: a new one in its place would invalidate every
    /// certificate of the old.
    fn ca(&self) -> anyhow::Result<Option<Credential>> {
        let (certificate, key) = match (&self.ca_certificate, &self.ca_key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
            (Some(_), None) => bail!(
                "{} has no ca.key beside it, and the database holds no cluster: restore the key (or the \
                 database), or remove ca.crt to create a new cluster with a new CA",
                self.ca_path.display()
            ),
            (None, Some(_)) => bail!(
                "{} has no ca.crt beside it: restore the certificate, or remove ca.key to create a new CA",
                self.ca_key_path.display()
            ),
        };
        let credential = Credential { certificate, key };
        Authority::load(credential.clone()).with_context(|| {
            format!("{} and {} are not a usable CA", self.ca_path.display(), self.ca_key_path.display())
        })?;
        Ok(Some(credential))
    }

    fn service_account_key(&self) -> anyhow::Result<Option<String>> {
        if let Some(key) = &self.service_account_key {
            Issuer::from_pem(key).with_context(|| {
                format!("{} is not a usable service account key", self.service_account_key_path.display())
            })?;
        }
        Ok(self.service_account_key.clone())
    }

    /// Refuses files that are not of this cluster: the data directory of another was used by mistake, or a file
    /// is damaged.
    fn check(&self, secrets: &ClusterSecrets) -> anyhow::Result<()> {
        let same = |file: &Option<String>, expected: &str| {
            file.as_ref().is_none_or(|file| file.trim() == expected.trim())
        };
        let is_ca_rotated = !secrets.retired_cas.is_empty() || !matches!(secrets.ca_rotation, Rotation::Idle);
        let is_key_rotated = secrets.service_account_key_rotations > 0;
        let checks = [
            (&self.ca_path, self.ca_certificate.as_ref().is_none_or(|file| secrets.knows_ca(file))),
            (&self.ca_key_path, is_ca_rotated || same(&self.ca_key, &secrets.ca.key)),
            (
                &self.service_account_key_path,
                is_key_rotated || same(&self.service_account_key, &secrets.service_account_key),
            ),
            (
                &self.admin_token_path,
                self.admin_token
                    .as_ref()
                    .is_none_or(|token| Tokens::digest(token) == secrets.admin_token_digest),
            ),
        ];
        for (path, is_same) in checks {
            if !is_same {
                bail!(
                    "{} is damaged, or of another cluster than the database: use a --data-dir of its own for \
                     each cluster, or remove the file",
                    path.display()
                );
            }
        }
        Ok(())
    }
}

impl ServingNames {
    /// Issues a serving certificate.
    fn issue(&self, authority: &Authority) -> anyhow::Result<Credential> {
        let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        let mut addresses = self.addresses.clone();
        for name in &self.sans {
            match name.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => names.push(name.clone()),
            }
        }
        Ok(authority.server(&names, &addresses)?)
    }
}

fn generate_token(data_dir: &DataDir, path: &Path) -> anyhow::Result<String> {
    let token = pki::generate_token();
    write(data_dir, path, &token)?;
    Ok(token)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn read_optional(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn write(data_dir: &DataDir, path: &Path, content: &str) -> anyhow::Result<()> {
    data_dir.write(path, content.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use orlop_store::{Config, Endpoint};

    use super::*;

    #[tokio::test]
    async fn certificates_are_renewed_before_they_expire_and_with_a_new_ca() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(&folder.path().join("data"), true).unwrap();
        let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
        let options = Options {
            cluster_key_file: None,
            tls_cert_file: None,
            tls_key_file: None,
            tls_san: Vec::new(),
            kubelet_certificate_authority: None,
        };
        let addresses = [IpAddr::from([127, 0, 0, 1])];
        let mut identity = Identity::load(&data_dir, &store, &addresses, &options).await.unwrap();
        let shown = |identity: &Identity| (identity.serving.clone(), identity.node_client.clone());
        let first = shown(&identity);
        assert!(!identity.renew_if_due(RENEWAL_MARGIN).unwrap());
        assert_eq!(shown(&identity), first);
        let six_years = Duration::from_secs(6 * 365 * 24 * 60 * 60);
        assert!(identity.renew_if_due(six_years).unwrap(), "they are valid for five");
        let second = shown(&identity);
        assert!(second.0 != first.0 && second.1 != first.1);

        let mut secrets = identity.secrets().clone();
        secrets.advance(identity::Rotated::Ca).unwrap();
        identity.adopt(secrets.clone()).unwrap();
        assert_eq!(shown(&identity), second, "the new CA is trusted and does not sign yet");
        assert_eq!(identity.root_ca.matches("BEGIN CERTIFICATE").count(), 2);
        secrets.advance(identity::Rotated::Ca).unwrap();
        identity.adopt(secrets).unwrap();
        assert!(shown(&identity).0 != second.0 && shown(&identity).1 != second.1);
        let client = identity.node_client.clone();
        assert!(identity.authority.is_client_valid(&client, Duration::ZERO), "it is of the new CA");
    }
}
