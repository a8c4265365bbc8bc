//! Benchmarks. Each prints a table and, with `--json FILE`, an array of rows
//! `{name, unit, value, peer, peer_value, ratio}`; `ratio` above 1 is in our favour. They never fail on time.

mod abuse;
mod access;
mod admission;
mod api;
mod aws;
mod bare;
mod client;
mod compose;
mod download;
mod etcd;
mod fairness;
mod load;
// Debian's etcd, as the tests of the endpoint start it.
#[path = "../../orlop-etcd/tests/support/peer.rs"]
mod peer;
mod report;
mod store;
mod webhooks;
mod wire;
mod workloads;

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand, ValueEnum};

// What is measured here is measured as the program runs it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Orlop's benchmarks, each beside a peer in the same run")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
    /// Also write the rows to this file, as a JSON array.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds for each load.
    #[arg(long, global = true, default_value_t = 3.0)]
    seconds: f64,
    /// A folder on the disk to measure; a temporary one by default.
    #[arg(long, global = true, value_name = "DIR")]
    folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Hostile use of the API server, and a polite client beside it.
    Abuse {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// Only these parts; all of them by default.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<abuse::Part>,
    },
    /// RBAC with many bindings, beside a server that allows everything.
    Access {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// Bindings of other users.
        #[arg(long, default_value_t = 10_000)]
        bindings: usize,
    },
    /// Cost of admission policies and of a webhook on the same machine for a write.
    Admission {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
    },
    /// The API server; with a peer, the same against another one.
    Api {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// A kubeconfig (with certificates in it) of another API server.
        #[arg(long, value_name = "KUBECONFIG")]
        peer: Option<PathBuf>,
        /// The other server's processes, to measure their processor time and memory together.
        #[arg(long, value_name = "PID", value_delimiter = ',', requires = "peer")]
        peer_processes: Vec<u32>,
        /// Objects that are listed.
        #[arg(long, default_value_t = 10_000)]
        objects: usize,
        /// Objects that a server of its own is filled with, to see what memory it takes.
        #[arg(long, default_value_t = 100_000)]
        many: usize,
        /// Only these steps; all of them by default.
        #[arg(long, value_delimiter = ',')]
        only: Vec<api::Step>,
    },
    /// AWS: Functions and domains to Ready on a simulator, and the cost of a look when nothing has changed.
    Aws {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// The orlop-aws to measure; the one beside orlop by default.
        #[arg(long, value_name = "FILE")]
        orlop_aws: Option<PathBuf>,
        /// Functions.
        #[arg(long, default_value_t = 1000)]
        functions: usize,
        /// Domains.
        #[arg(long, default_value_t = 200)]
        domains: usize,
        /// Seconds that each step may take.
        #[arg(long, default_value_t = 600.0)]
        deadline: f64,
    },
    /// The bare server that gets are measured beside.
    #[command(hide = true)]
    Bare {
        /// Folder for its kubeconfig.
        folder: PathBuf,
    },
    /// Composition: graphs of ConfigMaps, beside kro's controller where it is given.
    Compose {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// kro's controller.
        #[arg(long, value_name = "PATH")]
        peer: Option<PathBuf>,
        /// Files with kro's CRDs, one each.
        #[arg(long, value_name = "FILE", value_delimiter = ',', requires = "peer")]
        peer_crds: Vec<PathBuf>,
        /// Instances of each shape.
        #[arg(long, default_value_t = 200)]
        instances: usize,
        /// Definitions that memory is measured with.
        #[arg(long, default_value_t = 200)]
        definitions: usize,
        /// Instances of each of them.
        #[arg(long, default_value_t = 100)]
        instances_each: usize,
        /// Seconds that each shape may take.
        #[arg(long, default_value_t = 300.0)]
        deadline: f64,
        /// Only these parts; all of them by default.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<compose::Part>,
    },
    /// Memory and time of many unused CustomResourceDefinitions.
    Definitions {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// Number of definitions.
        #[arg(long, default_value_t = 1000)]
        count: usize,
    },
    /// The etcd endpoint, beside Debian's etcd.
    Etcd {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// Database to use, instead of a SQLite file in the folder and a throw-away PostgreSQL.
        #[arg(long, value_name = "ENDPOINT", conflicts_with = "only")]
        endpoint: Option<String>,
        /// Only on this database.
        #[arg(long, value_parser = ["sqlite", "postgres"])]
        only: Option<String>,
    },
    /// A polite client beside a flood of another user, with flow control and without.
    Fairness {
        /// The orlop to measure; the one beside this program by default.
        #[arg(long, value_name = "FILE")]
        orlop: Option<PathBuf>,
        /// A kubeconfig (with certificates in it) of another API server.
        #[arg(long, value_name = "KUBECONFIG")]
        peer: Option<PathBuf>,
        /// Objects that the flood lists.
        #[arg(long, default_value_t = 5_000)]
        objects: usize,
        /// Only these floods; all of them by default.
        #[arg(long, value_enum, value_delimiter = ',')]
        only: Vec<fairness::Flood>,
    },
    /// The flood that fairness is measured beside.
    #[command(hide = true)]
    Flood {
        /// Kubeconfig of the server.
        kubeconfig: PathBuf,
        /// Kind of flood.
        #[arg(value_enum)]
        flood: fairness::Flood,
    },
    /// The clients that do not read of `abuse`.
    #[command(hide = true)]
    Unread {
        /// Kubeconfig of the server.
        kubeconfig: PathBuf,
        /// Path of the requests.
        path: String,
        /// Number of requests.
        count: usize,
    },
    /// The store, beside kine's schema and statements on the same database.
    Store {
        /// Keys in the large database.
        #[arg(long, default_value_t = 1_000_000)]
        keys: usize,
        /// Only on this database.
        #[arg(long, value_parser = ["sqlite", "postgres"])]
        only: Option<String>,
        /// Only these parts.
        #[arg(long, value_enum, value_delimiter = ',')]
        part: Vec<store::Part>,
        /// Numbers of concurrent clients, for each load of writes.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
        clients: Vec<usize>,
    },
    /// Deployments and pods on a server with a node.
    Workloads(workloads::Options),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = match &arguments.folder {
        Some(parent) => tempfile::tempdir_in(parent)?,
        None => tempfile::tempdir()?,
    };
    let mut report = report::Report::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.bench {
            Bench::Abuse { orlop, only } => {
                let time = Duration::from_secs_f64(arguments.seconds);
                let parts = if only.is_empty() { abuse::Part::value_variants() } else { &only };
                abuse::run(&mut report, &program(orlop)?, folder.path(), time, parts).await
            }
            Bench::Access { orlop, bindings } => {
                let time = Duration::from_secs_f64(arguments.seconds);
                access::run(&mut report, &program(orlop)?, folder.path(), time, bindings).await
            }
            Bench::Admission { orlop } => {
                let time = Duration::from_secs_f64(arguments.seconds);
                admission::run(&mut report, time).await?;
                webhooks::run(&mut report, &program(orlop)?, folder.path(), time).await
            }
            Bench::Api { orlop, peer, peer_processes, objects, many, only } => {
                let size = api::Size { time: Duration::from_secs_f64(arguments.seconds), objects, many };
                let peer = peer.map(|kubeconfig| api::Peer { kubeconfig, processes: peer_processes });
                let steps = if only.is_empty() { api::Step::value_variants() } else { &only };
                api::run(&mut report, &program(orlop)?, peer, folder.path(), size, steps).await
            }
            Bench::Aws { orlop, orlop_aws, functions, domains, deadline } => {
                let program = program(orlop)?;
                let orlop_aws = orlop_aws.unwrap_or_else(|| program.with_file_name("orlop-aws"));
                let plan = aws::Plan { functions, domains, deadline: Duration::from_secs_f64(deadline) };
                aws::run(&mut report, &program, &orlop_aws, folder.path(), &plan).await
            }
            Bench::Bare { folder } => bare::serve(&folder).await,
            Bench::Compose {
                orlop,
                peer,
                peer_crds,
                instances,
                definitions,
                instances_each,
                deadline,
                only,
            } => {
                let parts = if only.is_empty() { compose::Part::value_variants().to_vec() } else { only };
                let deadline = Duration::from_secs_f64(deadline);
                let plan = compose::Plan {
                    parts,
                    peer,
                    peer_crds,
                    instances,
                    definitions,
                    instances_each,
                    deadline,
                };
                compose::run(&mut report, &program(orlop)?, folder.path(), &plan).await
            }
            Bench::Definitions { orlop, count } => {
                api::definitions::run(&mut report, &program(orlop)?, folder.path(), count).await
            }
            Bench::Etcd { orlop, endpoint, only } => {
                let time = Duration::from_secs_f64(arguments.seconds);
                let databases = match (endpoint, only.as_deref()) {
                    (Some(endpoint), _) => vec![etcd::Database::At(endpoint)],
                    (None, Some("sqlite")) => vec![etcd::Database::Sqlite],
                    (None, Some(_)) => vec![etcd::Database::Postgres],
                    (None, None) => vec![etcd::Database::Sqlite, etcd::Database::Postgres],
                };
                let plan = etcd::Plan { time, program: orlop, databases };
                etcd::run(&mut report, folder.path(), &plan).await
            }
            Bench::Fairness { orlop, peer, objects, only } => {
                let floods = if only.is_empty() { fairness::Flood::value_variants().to_vec() } else { only };
                let time = Duration::from_secs_f64(arguments.seconds);
                let plan = fairness::Plan { time, floods, objects, peer };
                fairness::run(&mut report, &program(orlop)?, folder.path(), &plan).await
            }
            Bench::Flood { kubeconfig, flood } => {
                fairness::flood(&kubeconfig, flood, Duration::from_secs_f64(arguments.seconds)).await
            }
            Bench::Unread { kubeconfig, path, count } => abuse::hold(&kubeconfig, &path, count).await,
            Bench::Store { keys, only, part, clients } => {
                let time = Duration::from_secs_f64(arguments.seconds);
                let plan = store::Plan { time, many: keys, parts: part, clients };
                if only.as_deref() != Some("postgres") {
                    store::run(&mut report, &folder, &plan).await?;
                }
                if only.as_deref() != Some("sqlite") {
                    store::postgres::run(&mut report, &plan).await?;
                }
                anyhow::Ok(())
            }
            Bench::Workloads(mut options) => {
                let program = program(options.orlop.take())?;
                let plan = options.plan(arguments.seconds);
                workloads::run(&mut report, &program, folder.path(), &plan).await
            }
        }
    })?;
    if let Some(path) = &arguments.json {
        report.write(path)?;
    }
    Ok(())
}

/// The orlop to measure: the one beside this program unless another is named.
fn program(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    Ok(match named {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("orlop"),
    })
}
