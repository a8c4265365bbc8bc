//! The server's identity: the cluster's shared secrets, its own certificate, the administrator's credentials.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use orlop_server::{
    Tokens, User,
    auth::{
        identity::{self, ClusterKey, ClusterSecrets},
        issuer::Issuer,
        kubeconfig::{self, Kubeconfig, Secret},
        pki::{self, Authority, Credential},
    },
};
use orlop_store::{Store, private_files};

use super::data_dir::DataDir;
use crate::private_key::refuse_if_public;

/// DNS names under which clients inside a cluster reach its API server.
const NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
/// Time before it expires at which the administrator's certificate is replaced.
const RENEWAL_MARGIN: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Files and names that a user passes.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Key that the cluster's shared secrets in the database are encrypted with [default: DATA_DIR/cluster.key,
    /// generated with a new cluster]. To join a cluster, copy it from one of its servers.
    #[arg(long, env = "ORLOP_CLUSTER_KEY_FILE", value_name = "PATH", help_heading = "Trust")]
    cluster_key_file: Option<PathBuf>,

    /// Serving certificate (PEM, with its chain) to use instead of one that the cluster's CA issues.
    #[arg(long, requires = "tls_key_file", value_name = "PATH", help_heading = "Trust")]
    tls_cert_file: Option<PathBuf>,

    /// Private key (PEM) of the serving certificate.
    #[arg(long, requires = "tls_cert_file", value_name = "PATH", help_heading = "Trust")]
    tls_key_file: Option<PathBuf>,

    /// Subject alternative names of the serving certificate, besides localhost and the listen address.
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = "Trust")]
    tls_san: Vec<String>,

    /// Static bearer tokens, one per line: token,user,uid,"group1,group2". Members of system:masters may do
    /// everything.
    #[arg(long, value_name = "PATH", help_heading = "Trust")]
    token_auth_file: Option<PathBuf>,
}

/// Everything about trust that a server needs. Not `Debug`: it holds secrets.
pub(super) struct Identity {
    authority: Authority,
    serving: Credential,
    /// The administrator's token, on the server that has it.
    admin_token: Option<String>,
    pub(super) tokens: Tokens,
    pub(super) issuer: Issuer,
    /// File of the administrator's token.
    pub(super) token_file: PathBuf,
    /// File of the cluster key.
    pub(super) key_file: PathBuf,
    /// Certificates (PEM) that clients verify the server by.
    pub(super) root_ca: String,
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
        let ca_file = data_dir.join("pki/ca.crt");
        if files.ca_certificate.is_none() {
            write(data_dir, &ca_file, &secrets.ca.certificate)?;
        }
        let authority =
            Authority::load(secrets.ca.clone()).context("the cluster's CA in the database cannot be used")?;
        let mut root_ca = authority.certificate().to_owned();
        let serving = match (&options.tls_cert_file, &options.tls_key_file) {
            (Some(certificate), Some(key)) => {
                refuse_if_public(key)?;
                let serving = Credential { certificate: read(certificate)?, key: read(key)? };
                root_ca.push_str(&serving.certificate);
                serving
            }
            _ => issue_serving(&authority, addresses, &options.tls_san)?,
        };
        let mut tokens = vec![(secrets.admin_token_digest, User::master("kubernetes-admin"))];
        if let Some(path) = &options.token_auth_file {
            refuse_if_public(path)?;
            let parsed = Tokens::parse(&read(path)?).with_context(|| path.display().to_string())?;
            tokens.extend(parsed.into_iter().map(|(token, user)| (Tokens::digest(&token), user)));
        }
        Ok(Self {
            authority,
            serving,
            admin_token,
            tokens: Tokens::from_digests(tokens),
            issuer: Issuer::from_pem(&secrets.service_account_key)
                .map_err(anyhow::Error::msg)
                .context("the cluster's service account key in the database cannot be used")?,
            token_file,
            key_file: key.path().to_owned(),
            root_ca,
        })
    }

    /// Returns the TLS configuration to serve with.
    pub(super) fn tls(&self) -> anyhow::Result<orlop_net::ServerTls> {
        Ok(pki::server_tls(&self.serving, self.authority.certificate())?)
    }

    /// Returns whether this server knows the administrator's token.
    pub(super) fn has_admin_token(&self) -> bool {
        self.admin_token.is_some()
    }

    /// Writes the administrator's kubeconfig, unless the file says the same already. Its certificate is kept
    /// while it is valid.
    pub(super) fn write_kubeconfig(
        &self,
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
        if wanted == current { Ok(()) } else { write(data_dir, path, &wanted) }
    }
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
        let checks = [
            (&self.ca_path, same(&self.ca_certificate, &secrets.ca.certificate)),
            (&self.ca_key_path, same(&self.ca_key, &secrets.ca.key)),
            (&self.service_account_key_path, same(&self.service_account_key, &secrets.service_account_key)),
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

/// Issues a serving certificate for the names and addresses that clients use.
fn issue_serving(authority: &Authority, addresses: &[IpAddr], sans: &[String]) -> anyhow::Result<Credential> {
    let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let mut addresses = addresses.to_vec();
    for name in sans {
        match name.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => names.push(name.clone()),
        }
    }
    Ok(authority.server(&names, &addresses)?)
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
