//! An API server for kinds of our own, on a SQLite file: `cargo run -p own-kinds`.

use std::{path::Path, sync::Arc};

use orlop_server::{
    Tokens,
    auth::{
        kubeconfig::Kubeconfig,
        pki::{self, Authority},
    },
    bootstrap::bootstrap,
    chain::Chain,
    cluster::Cluster,
    serve::serve,
};
use orlop_store::{Config, Endpoint, Store};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = Path::new("own-kinds-data");
    std::fs::create_dir_all(folder)?;
    let mut config = Config::new(Endpoint::Sqlite(folder.join("own-kinds.db")));
    config.commit_on_caller = false;
    let store = Store::open(config).await?;
    let listener = TcpListener::bind("127.0.0.1:7443").await?;

    // Recipes are stored by the cluster of the default kubeconfig, if there is one.
    let elsewhere = kube::Client::try_default().await.ok().map(orlop_typed::Cluster::new);
    let issuer = pki::load_or_generate_issuer(folder)?;
    let cluster = Arc::new(Cluster::new(store.clone(), own_kinds::kinds(elsewhere), issuer));
    let chain = Chain::new(cluster, Tokens::default());

    let authority = Authority::load_or_generate(folder)?;
    bootstrap(&chain, 7443, authority.certificate()).await?;
    let server = authority.server(&["localhost".to_owned()], &[[127, 0, 0, 1].into()])?;
    let tls = pki::server_tls(&server, authority.certificate())?;
    let admin = authority.client("admin", "system:masters")?;
    let kubeconfig = Kubeconfig {
        server: "https://127.0.0.1:7443",
        trusted: authority.certificate(),
        server_name: None,
        certificate: &admin,
        token: None,
    };
    pki::write_secret(&folder.join("kubeconfig"), kubeconfig.to_yaml().as_bytes())?;
    println!("Try: kubectl --kubeconfig {}/kubeconfig get lamps,switches --all-namespaces", folder.display());

    serve(listener, chain, Some(tls), async { drop(tokio::signal::ctrl_c().await) }).await;
    store.close().await;
    Ok(())
}
