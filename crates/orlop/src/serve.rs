//! `orlop serve`: the Kubernetes API server.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Instant};

use anyhow::Context;
use orlop_server::{
    Tokens, User,
    bootstrap::bootstrap,
    chain::Chain,
    cluster::Cluster,
    pki::{self, Authority},
    registry::Kinds,
    serve::serve,
};
use orlop_store::{Config, Durability, Endpoint, Store};
use tokio::net::TcpListener;

use crate::shutdown;

/// Starts a control plane that kubectl and every Kubernetes client can use. Without options it keeps
/// everything in ./orlop-data and listens on https://127.0.0.1:6443.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the database, the CA and the kubeconfig.
    #[arg(long, env = "ORLOP_DATA_DIR", default_value = "orlop-data")]
    data_dir: PathBuf,

    /// Address and port to listen on.
    #[arg(long, env = "ORLOP_LISTEN", default_value = "127.0.0.1:6443", value_name = "ADDR:PORT")]
    listen: SocketAddr,

    /// Where to write the administrator's kubeconfig [default: DATA_DIR/kubeconfig].
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The database: sqlite:///path/to/file.db, postgres://user@host/database, or memory
    /// [default: a SQLite file in the data folder].
    #[arg(long, env = "ORLOP_ENDPOINT", value_name = "URL", hide_env_values = true)]
    endpoint: Option<String>,

    /// What an acknowledged write has survived: "full" a power cut; "relaxed" only a crash of this program,
    /// in exchange for writes that do not wait for the disk.
    #[arg(long, default_value = "full", value_parser = ["full", "relaxed"])]
    durability: String,

    /// Keep everything in memory, listen on a free port, print one line of JSON when ready:
    /// a server for tests.
    #[arg(long)]
    ephemeral: bool,

    /// Which controllers run: "*" for all, "name" for one, "-name" for all but one. Leave out those that a
    /// kube-controller-manager is to do instead.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true, value_name = "LIST")]
    controllers: Vec<String>,

    /// A certificate to serve with, instead of one of the cluster's own CA.
    #[arg(long, requires = "tls_key_file", value_name = "PATH")]
    tls_cert_file: Option<PathBuf>,

    /// The key of that certificate.
    #[arg(long, requires = "tls_cert_file", value_name = "PATH")]
    tls_key_file: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let controllers = orlop_controllers::chosen(&arguments.controllers)?;
    // An ephemeral server's files go with it.
    let temporary = arguments.ephemeral.then(tempfile::tempdir).transpose()?;
    let data_dir = temporary.as_ref().map_or(arguments.data_dir.clone(), |folder| folder.path().to_owned());
    std::fs::create_dir_all(&data_dir).with_context(|| format!("cannot create {}", data_dir.display()))?;
    let endpoint = match (&arguments.endpoint, arguments.ephemeral) {
        (Some(text), _) => Endpoint::parse(text)?,
        (None, true) => Endpoint::Memory,
        (None, false) => Endpoint::Sqlite(data_dir.join("orlop.db")),
    };
    let mut config = Config::new(endpoint.clone());
    if arguments.durability == "relaxed" {
        config.durability = Durability::Relaxed;
    }
    let store = Store::open(config).await.with_context(|| format!("cannot open {endpoint}"))?;

    let mut listen = arguments.listen;
    if arguments.ephemeral {
        listen.set_port(0);
    }
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let address = listener.local_addr()?;
    let authority = Authority::kept(&data_dir.join("pki"))?;
    let server = match (&arguments.tls_cert_file, &arguments.tls_key_file) {
        (Some(certificate), Some(key)) => pki::Credential {
            certificate: std::fs::read_to_string(certificate)?,
            key: std::fs::read_to_string(key)?,
        },
        _ => authority.server(&names(), &[address.ip(), [127, 0, 0, 1].into(), [10, 0, 0, 1].into()])?,
    };
    let tls = pki::server_config(&server, authority.certificate())?;
    let url = format!("https://{}", reachable(address));
    let kubeconfig = arguments.kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
    let admin = authority.client("kubernetes-admin", "system:masters")?;
    let text = pki::kubeconfig(&url, Some(authority.certificate()), &admin);
    pki::write_secret(&kubeconfig, text.as_bytes())?;

    let cluster =
        Arc::new(Cluster::new(store.clone(), Kinds::builtin(), pki::issuer_kept(&data_dir.join("pki"))?));
    let chain = Chain::new(cluster, Tokens::default());
    bootstrap(&chain, address.port(), authority.certificate()).await.map_err(anyhow::Error::msg)?;
    let certificate = authority.certificate().to_owned();
    let client = kube::Client::new(chain.service(User::master("system:kube-controller-manager")), "default");
    let controllers =
        tokio::spawn(async move { orlop_controllers::run(client, &controllers, certificate).await });
    if arguments.ephemeral {
        println!("{}", serde_json::json!({"server": url, "kubeconfig": kubeconfig}));
    } else {
        println!(
            "orlop serves the Kubernetes API at {url} (ready in {} ms)

  data        {endpoint}
  kubeconfig  {}

Try it:
  kubectl --kubeconfig {} get namespaces
",
            started.elapsed().as_millis(),
            kubeconfig.display(),
            kubeconfig.display(),
        );
    }
    serve(listener, chain, Some(tls), shutdown::asked()).await;
    controllers.abort();
    store.close().await;
    Ok(())
}

/// Names under which clients may reach the server.
fn names() -> Vec<String> {
    [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// An address that this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    address
}
