//! Who the server is and who may use it: its CA, its certificate, the administrator's credentials.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::Context;
use orlop_server::{
    Tokens, User,
    auth::{
        issuer::Issuer,
        kubeconfig::{Kubeconfig, Secret},
        pki::{self, Authority, Credential},
    },
};

/// Names under which clients inside a cluster reach its API server.
const NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Files and names that a user brings.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// A certificate (PEM, with its chain) to serve with, instead of one of the cluster's own CA.
    #[arg(long, requires = "tls_key_file", value_name = "PATH", help_heading = "Trust")]
    tls_cert_file: Option<PathBuf>,

    /// The key (PEM) of that certificate.
    #[arg(long, requires = "tls_cert_file", value_name = "PATH", help_heading = "Trust")]
    tls_key_file: Option<PathBuf>,

    /// Names and addresses, besides localhost and the one listened on, that the server's own certificate is
    /// to be good for.
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = "Trust")]
    tls_san: Vec<String>,

    /// Bearer tokens, a line each: token,user,uid,"group1,group2". Members of system:masters may do
    /// everything.
    #[arg(long, value_name = "PATH", help_heading = "Trust")]
    token_auth_file: Option<PathBuf>,
}

/// Everything about trust that a server needs. Not `Debug`: it holds secrets.
pub(super) struct Identity {
    authority: Authority,
    server: Credential,
    token: String,
    pub(super) tokens: Tokens,
    pub(super) issuer: Issuer,
    /// Where the administrator's token is kept.
    pub(super) token_file: PathBuf,
    /// What clients of the server trust.
    pub(super) trusted: String,
}

impl Identity {
    /// Reads what the folder keeps, and makes what is missing.
    pub(super) fn kept(data_dir: &Path, listen: IpAddr, options: &Options) -> anyhow::Result<Self> {
        let folder = data_dir.join("pki");
        let authority = Authority::kept(&folder)?;
        let mut trusted = authority.certificate().to_owned();
        let server = match (&options.tls_cert_file, &options.tls_key_file) {
            (Some(certificate), Some(key)) => {
                let brought = Credential { certificate: read(certificate)?, key: read(key)? };
                trusted.push_str(&brought.certificate);
                brought
            }
            _ => {
                let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
                let mut addresses = vec![listen, [127, 0, 0, 1].into(), [10, 0, 0, 1].into()];
                for name in &options.tls_san {
                    match name.parse() {
                        Ok(address) => addresses.push(address),
                        Err(_) => names.push(name.clone()),
                    }
                }
                authority.server(&names, &addresses)?
            }
        };
        let token = pki::token_kept(&folder)?;
        let mut tokens = vec![(token.clone(), User::master("kubernetes-admin"))];
        if let Some(path) = &options.token_auth_file {
            tokens.extend(Tokens::parse(&read(path)?).with_context(|| path.display().to_string())?);
        }
        Ok(Self {
            authority,
            server,
            token,
            tokens: Tokens::new(tokens),
            issuer: pki::issuer_kept(&folder)?,
            token_file: folder.join("admin.token"),
            trusted,
        })
    }

    /// How to serve with TLS.
    pub(super) fn tls(&self) -> anyhow::Result<pki::Tls> {
        Ok(pki::Tls::new(&self.server, self.authority.certificate())?)
    }

    /// Writes the administrator's kubeconfig.
    pub(super) fn write_kubeconfig(&self, path: &Path, server: SocketAddr) -> anyhow::Result<()> {
        let server_name = pki::name_for(&self.server.certificate, server.ip());
        let kubeconfig = Kubeconfig {
            server: &format!("https://{server}"),
            trusted: &self.trusted,
            server_name: server_name.as_deref(),
            certificate: &self.authority.client("kubernetes-admin", "system:masters")?,
            token: Some(Secret(&self.token)),
        };
        Ok(pki::write_secret(path, kubeconfig.to_yaml().as_bytes())?)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
