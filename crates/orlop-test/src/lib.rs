//! A Kubernetes API server inside a test, for people who write operators.
//!
//! ```
//! use k8s_openapi::api::core::v1::Namespace;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! let server = orlop_test::Server::start().await?;
//! let namespaces = kube::Api::<Namespace>::all(server.client());
//! assert!(namespaces.get("default").await?.metadata.uid.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! It is the complete server with all built-in kinds, in memory and in this process: no port, no certificates,
//! no files. Controllers run, so garbage collection and namespace deletion work. It is ready in milliseconds and
//! stops when dropped, so every test can have its own.
//!
//! For tests in other languages use `orlop serve --ephemeral`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kube::{Client, client::Body};
use orlop_controllers::{Defaults, Options};
use orlop_server::{
    Tokens, User,
    admission::{ConfigurationError, Settings, chain},
    auth::{
        controller_manager_user, controller_user,
        issuer::{Issuer, IssuerError},
        pki::Authority,
    },
    bootstrap::{BootstrapError, bootstrap},
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use tokio::task::JoinHandle;

/// User of [`Server::client`].
const ADMINISTRATOR: &str = "kubernetes-admin";

/// A server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store did not open.
    #[error("the store could not be opened")]
    Store(#[from] orlop_store::Error),
    /// The CA was not generated.
    #[error("the CA could not be generated")]
    Authority(#[from] orlop_server::auth::pki::Error),
    /// There is no such controller.
    #[error(transparent)]
    Controllers(#[from] orlop_controllers::UnknownController),
    /// The system objects were not created.
    #[error("the cluster could not be set up")]
    Bootstrap(#[from] BootstrapError),
    /// An admission plugin was not set up.
    #[error(transparent)]
    Admission(#[from] ConfigurationError),
    /// The issuer of service account tokens has no key.
    #[error("the token issuer could not be set up")]
    Issuer(#[from] IssuerError),
}

/// A running server. Stops when dropped.
#[derive(Debug)]
pub struct Server {
    chain: Chain,
    controllers: JoinHandle<()>,
    ready_in: Duration,
}

impl Server {
    /// Starts a server with the controllers that no API server can do without, as `orlop serve` does.
    pub async fn start() -> Result<Self, Error> {
        Self::launch(Kinds::builtin(), orlop_controllers::select(&[], Defaults::ApiServer)?).await
    }

    /// Starts a server with some controllers, chosen as with `orlop serve --controllers`: `["*"]` for all, those of
    /// workloads and the scheduler too, `["-garbage-collector-controller"]` for the default but one, `[]` for none.
    pub async fn with_controllers(choices: &[&str]) -> Result<Self, Error> {
        Self::with(Kinds::builtin(), choices).await
    }

    /// Starts a server with kinds of your own (see `orlop-typed`) and some controllers.
    pub async fn with(kinds: Kinds, controllers: &[&str]) -> Result<Self, Error> {
        let choices: Vec<String> = controllers.iter().map(|choice| (*choice).to_owned()).collect();
        let chosen = match choices.is_empty() {
            true => Vec::new(),
            false => orlop_controllers::select(&choices, Defaults::ApiServer)?,
        };
        Self::launch(kinds, chosen).await
    }

    async fn launch(kinds: Kinds, controllers: Vec<&'static str>) -> Result<Self, Error> {
        let started = Instant::now();
        let store = Store::open(Config::new(Endpoint::Memory)).await?;
        let issuer = Issuer::generate()?;
        let cluster = Cluster::new(store, kinds, issuer)
            .with_admission_plugins(&plugins(&controllers), Settings::default())?;
        let chain = Chain::new(Arc::new(cluster), Tokens::default());
        let certificate = Authority::generate()?.certificate().to_owned();
        // Nothing listens: the port is only that of the Service default/kubernetes.
        bootstrap(&chain, 6443, &certificate).await?;
        let own = |user: User| orlop_client::Client::new(chain.service(user), "default");
        let client = own(controller_manager_user());
        let options = Options { root_ca: certificate.into(), ..Options::default() };
        let manager = orlop_controllers::manager(client, &controllers, &options)
            .with_clients(|name| own(controller_user(name)));
        let controllers = tokio::spawn(manager.run(std::future::pending()));
        Ok(Self { chain, controllers, ready_in: started.elapsed() })
    }

    /// Returns an administrator's client, with `default` as its namespace.
    pub fn client(&self) -> Client {
        client_of(&self.chain, User::master(ADMINISTRATOR))
    }

    /// Returns a client of a user in groups.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        let groups = groups.iter().map(|group| (*group).to_owned());
        client_of(&self.chain, User::authenticated(user, groups))
    }

    /// Returns the time that the start took.
    pub fn ready_in(&self) -> Duration {
        self.ready_in
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.controllers.abort();
        // Ends watches that clients still hold.
        self.chain.close();
    }
}

/// Returns the admission plugins of a server: the default ones. Without the controller of service accounts no pod would
/// find its own.
fn plugins(controllers: &[&'static str]) -> Vec<&'static str> {
    let has_accounts = controllers.contains(&"serviceaccount-controller");
    let plugins = chain::defaults().into_iter();
    plugins.filter(|plugin| has_accounts || *plugin != "ServiceAccount").collect()
}

/// Returns a client for Orlop's own controllers that sends its requests with another.
pub fn for_controllers(client: Client) -> orlop_client::Client {
    let service = tower::service_fn(move |request: http::Request<Full<Bytes>>| {
        let client = client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => Body::from(body.to_bytes().to_vec()),
                Err(never) => match never {},
            };
            client.send(http::Request::from_parts(parts, body)).await
        }
    });
    orlop_client::Client::new(service, "default")
}

fn client_of(chain: &Chain, user: User) -> Client {
    Client::new(chain.service(user), "default")
}
