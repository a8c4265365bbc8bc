//! `orlop serve`: the Kubernetes API server.

mod identity;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use orlop_server::{
    User,
    bootstrap::{self, bootstrap},
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    serve::serve,
};
use orlop_store::{Config, Durability, Endpoint, Store};
use tokio::{net::TcpListener, sync::watch};

use crate::{duration, shutdown};

const EXAMPLES: &str = "\
Examples:
  orlop serve
      A control plane in ./orlop-data, at https://127.0.0.1:6443.
  orlop serve --data-dir /var/lib/orlop --listen 0.0.0.0:6443 --tls-san api.example.org
      For other machines too, which reach it as api.example.org.
  orlop serve --endpoint postgres://orlop@db.example.org/orlop --kubeconfig ~/.kube/orlop
      On PostgreSQL, with the administrator's kubeconfig where you want it.
  orlop serve --tls-cert-file tls.crt --tls-key-file tls.key
      With a certificate of your own.
  orlop serve --insecure-listen 127.0.0.1:8080
      Also in plain HTTP for programs on this machine:
      curl -H \"Authorization: Bearer $(cat orlop-data/pki/admin.token)\" http://127.0.0.1:8080/api/v1/namespaces
  orlop serve --controllers=-garbage-collector-controller,-namespace-controller
      Leaves these to a kube-controller-manager.
  orlop serve --ephemeral
      A server for a test: in memory, on a free port, gone with its process.";

/// How long the store may take to close once nobody is served any more.
const CLOSING: Duration = Duration::from_secs(5);

/// The name of the health check of the controllers' start.
const CONTROLLERS: &str = "start-orlop-controllers";

/// Starts a control plane that kubectl and every Kubernetes client can use. Without options it keeps
/// everything in ./orlop-data and listens on https://127.0.0.1:6443.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Folder for the database, the CA, the administrator's token and the kubeconfig.
    #[arg(long, env = "ORLOP_DATA_DIR", default_value = "orlop-data", value_name = "DIR")]
    data_dir: PathBuf,

    /// Address and port to listen on [default: 127.0.0.1:6443; with --ephemeral a free port].
    #[arg(long, env = "ORLOP_LISTEN", value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,

    /// Also listen here without TLS, for programs on this machine: only loopback addresses are taken. Requests
    /// need a bearer token, such as the one in DATA_DIR/pki/admin.token (kubectl shows none without TLS).
    #[arg(long, value_name = "ADDR:PORT", value_parser = loopback)]
    insecure_listen: Option<SocketAddr>,

    /// Where to write the administrator's kubeconfig, mode 0600 [default: DATA_DIR/kubeconfig].
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
    /// kube-controller-manager is to do instead. There are garbage-collector-controller, namespace-controller,
    /// serviceaccount-controller and root-ca-certificate-publisher-controller.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true, value_name = "LIST")]
    controllers: Vec<String>,

    /// How long to go on serving, no longer ready, once asked to stop: time for load balancers to notice.
    #[arg(long, default_value = "0", value_parser = duration::parse, value_name = "TIME")]
    shutdown_delay_duration: Duration,

    #[command(flatten)]
    identity: identity::Options,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let asked_to_stop = shutdown::asked();
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
    let default_port = if arguments.ephemeral { 0 } else { 6443 };
    let listener = bind(arguments.listen.unwrap_or(([127, 0, 0, 1], default_port).into())).await?;
    let insecure_listener = match arguments.insecure_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let address = reachable(listener.local_addr()?);
    let insecure_address = insecure_listener.as_ref().map(TcpListener::local_addr).transpose()?;
    let identity = identity::Identity::kept(&data_dir, listener.local_addr()?.ip(), &arguments.identity)?;
    let tls = identity.tls()?;
    let kubeconfig = arguments.kubeconfig.unwrap_or_else(|| data_dir.join("kubeconfig"));
    identity.write_kubeconfig(&kubeconfig, address)?;

    let mut config = Config::new(endpoint.clone());
    // Watchers that fall behind read the log, and the operating system keeps what SQLite does not: see
    // docs/decisions/0013-memory.md.
    (config.ring_bytes, config.cache_bytes) = (2 << 20, 2 << 20);
    config.commit_on_caller = false;
    config.readers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, 4);
    if arguments.durability == "relaxed" {
        config.durability = Durability::Relaxed;
    }
    let store = Store::open(config).await.with_context(|| format!("cannot open {endpoint}"))?;
    let cluster = Arc::new(Cluster::new(store.clone(), Kinds::builtin(), identity.issuer));
    let chain = Chain::new(cluster, identity.tokens);
    chain.expect(bootstrap::STEPS);
    chain.expect(&[CONTROLLERS]);

    // Serving begins before everything is there, so that probes can ask how far it is.
    let (stop, stopped) = watch::channel(false);
    let serving = [Some((listener, Some(tls))), insecure_listener.map(|listener| (listener, None))];
    let serving: Vec<_> = serving
        .into_iter()
        .flatten()
        .map(|(listener, tls)| tokio::spawn(serve(listener, chain.clone(), tls, told(stopped.clone()))))
        .collect();
    bootstrap(&chain, address.port(), &identity.trusted).await.map_err(anyhow::Error::msg)?;
    let client = kube::Client::new(chain.service(User::master("system:kube-controller-manager")), "default");
    let trusted = identity.trusted;
    let kept = tokio::spawn(bootstrap::keep(chain.clone(), address.port(), trusted.clone()));
    let controllers =
        tokio::spawn(async move { orlop_controllers::run(client, &controllers, trusted).await });
    chain.done(CONTROLLERS);

    if arguments.ephemeral {
        let mut ready = serde_json::json!({"server": format!("https://{address}"), "kubeconfig": kubeconfig});
        if let Some(address) = insecure_address {
            ready["insecureServer"] = format!("http://{address}").into();
        }
        println!("{ready}");
    } else {
        let insecure = insecure_address.map_or_else(String::new, |address| {
            format!("  insecure    http://{address} (this machine only)\n")
        });
        println!(
            "orlop serves the Kubernetes API at https://{address} (ready in {} ms)

  data        {endpoint}
  kubeconfig  {}
  token       {}
{insecure}
Try it:
  kubectl --kubeconfig {} get namespaces
",
            started.elapsed().as_millis(),
            kubeconfig.display(),
            identity.token_file.display(),
            kubeconfig.display(),
        );
    }

    asked_to_stop.await;
    chain.stopping();
    tokio::time::sleep(arguments.shutdown_delay_duration).await;
    // Before watches end: whoever watches would only begin again.
    for work in [kept, controllers] {
        work.abort();
        let _ = work.await;
    }
    stop.send_replace(true);
    for serving in serving {
        let _ = serving.await;
    }
    drop(chain);
    // A request that outlived the drain still holds the store. What it was told is durable either way.
    if tokio::time::timeout(CLOSING, store.close()).await.is_err() {
        tracing::warn!("requests were still under way when the server stopped");
    }
    Ok(())
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Returns once the word to stop has been given.
async fn told(mut stopped: watch::Receiver<bool>) {
    // An error means that whoever would give the word is gone, which is as good.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// An address that only this machine can reach.
fn loopback(text: &str) -> anyhow::Result<SocketAddr> {
    let address: SocketAddr = text.parse().context("write ADDR:PORT, as in 127.0.0.1:8080")?;
    if !address.ip().is_loopback() {
        bail!("without TLS only a loopback address is served, such as 127.0.0.1:{}", address.port());
    }
    Ok(address)
}

/// An address that this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    address
}
