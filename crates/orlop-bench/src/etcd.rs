//! The etcd endpoint beside Debian's etcd: the same clients, the same loads, one after the other.
//!
//! Both run as processes of their own on the same disk, and each load runs several rounds that alternate
//! between them, so that what else the machine does falls on both. The median round counts.
//!
//! Calls are made by [`crate::wire`], which leaves the processor to the servers; only watches, which both
//! servers feed faster than they are asked to, are read with a client library.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use orlop_etcd::{
    Client, ClientTls,
    pb::etcdserverpb::{
        LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, PutRequest, PutResponse,
        RangeRequest, WatchCreateRequest, WatchRequest, watch_request::RequestUnion,
    },
};
use orlop_testbed::Cluster;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    load::{self, Measured},
    peer::{Peer, free_port},
    report::{Better, Report},
    wire::{self, Call, Kind, Request},
};

const PEER: &str = "etcd";
const VALUE: &[u8] = &[b'x'; 256];
const ROUNDS: usize = 3;
const WATCHES: usize = 25;
const LISTED: usize = 500;

/// Plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Each load of each round.
    pub(crate) time: Duration,
    /// The program under test; `orlop` beside this one by default.
    pub(crate) program: Option<PathBuf>,
    /// Databases of orlop, one after the other.
    pub(crate) databases: Vec<Database>,
}

/// Database of orlop.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    /// A file in the folder.
    Sqlite,
    /// A cluster for this run.
    Postgres,
    /// Whatever an address says.
    At(String),
}

/// A server under test.
struct Server {
    process: Process,
    /// host:port
    authority: String,
    clients: Vec<Client>,
}

enum Process {
    Etcd(Peer),
    Orlop(Child),
}

impl Server {
    fn id(&self) -> u32 {
        match &self.process {
            Process::Etcd(peer) => peer.id(),
            Process::Orlop(child) => child.id(),
        }
    }

    fn resident_mib(&self, field: &str) -> f64 {
        load::status_mib(&self.id().to_string(), field)
    }

    /// One of its clients with a library of their own.
    fn client(&self, n: usize) -> Client {
        self.clients[n % self.clients.len()].clone()
    }

    async fn load(&self, clients: usize, time: Duration, call: Call) -> anyhow::Result<Measured> {
        wire::run(&self.authority, connections(clients), clients, time, call).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Process::Orlop(child) = &mut self.process {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Clients share connections, as those of one API server do.
fn connections(clients: usize) -> usize {
    (clients / 10).clamp(1, 100)
}

/// Runs every load on every database and, in the same run, on etcd.
pub(crate) async fn run(report: &mut Report, folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    for database in &plan.databases {
        let cluster = match database {
            Database::Postgres => {
                let started = tokio::task::spawn_blocking(Cluster::start).await?;
                Some(started.map_err(|error| anyhow!(error))?)
            }
            Database::Sqlite | Database::At(_) => None,
        };
        let (name, data) = match (database, &cluster) {
            (Database::At(endpoint), _) => (String::new(), endpoint.clone()),
            (_, Some(cluster)) => {
                let database = cluster.create_database().map_err(|error| anyhow!(error))?;
                ("postgres: ".to_owned(), cluster.url(&database))
            }
            (_, None) => (String::new(), format!("sqlite://{}", folder.join("orlop.db").display())),
        };
        on(report, plan, &name, &data).await?;
    }
    Ok(())
}

/// Runs every load on etcd and on orlop with its data at an endpoint.
async fn on(report: &mut Report, plan: &Plan, name: &str, data: &str) -> anyhow::Result<()> {
    let peer = Peer::start(&["--quota-backend-bytes", "8589934592"]).map_err(|error| anyhow!(error))?;
    let (authority, clients) = connect(&peer.url).await?;
    let etcd = Server { process: Process::Etcd(peer), authority, clients };
    let orlop = start(plan, data).await?;
    let servers = [&etcd, &orlop];
    for clients in [1, 64, 1000] {
        both(report, &format!("{name}put, {clients} clients"), clients, plan.time, servers, put).await?;
    }
    for server in servers {
        fill(server).await?;
    }
    both(report, &format!("{name}get, 64 clients"), 64, plan.time, servers, get).await?;
    both(report, &format!("{name}list 500 keys, 8 clients"), 8, plan.time, servers, list).await?;
    churn(report, name, plan.time, servers).await?;
    keep_alive(report, name, plan.time, servers).await?;
    for (label, field) in [("resident memory at the end", "VmRSS"), ("resident memory at the most", "VmHWM")]
    {
        let (theirs, ours) = (etcd.resident_mib(field), orlop.resident_mib(field));
        report.beside(format!("{name}{label}"), "MiB", Better::Lower, ours, PEER, theirs);
    }
    Ok(())
}

async fn start(plan: &Plan, data: &str) -> anyhow::Result<Server> {
    let beside = std::env::current_exe()?.with_file_name("orlop");
    let program = plan.program.clone().unwrap_or(beside);
    let url = format!("http://127.0.0.1:{}", free_port().map_err(|error| anyhow!(error))?);
    let child = Command::new(&program)
        .args(["etcd", "--listen-address", &url, "--endpoint", data])
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("{}: build it with `cargo build --release -p orlop`", program.display()))?;
    let process = Process::Orlop(child);
    let mut server = Server { process, authority: String::new(), clients: Vec::new() };
    (server.authority, server.clients) = connect(&url).await?;
    Ok(server)
}

/// The server's host and port, and as many clients as watch.
async fn connect(url: &str) -> anyhow::Result<(String, Vec<Client>)> {
    let begun = Instant::now();
    let mut clients = Vec::new();
    while clients.len() < WATCHES {
        match Client::connect(url, &ClientTls::default()).await {
            Ok(client) => clients.push(client),
            Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let authority = url.strip_prefix("http://").context("not an http address")?;
    Ok((authority.to_owned(), clients))
}

/// Runs a load on both servers in turn and reports the median rounds.
async fn both(
    report: &mut Report,
    name: &str,
    clients: usize,
    time: Duration,
    servers: [&Server; 2],
    call: fn() -> Call,
) -> anyhow::Result<()> {
    let mut rounds = [Vec::new(), Vec::new()];
    // Processor time of each server and of its clients, and the operations it went into.
    let mut spent = [(0.0, 0.0, 0); 2];
    for _ in 0..ROUNDS {
        for ((server, rounds), spent) in servers.iter().zip(&mut rounds).zip(&mut spent) {
            let processes = [server.id(), std::process::id()];
            let before = processes.map(load::processor_seconds);
            let load = server.load(clients, time, call()).await?;
            let after = processes.map(load::processor_seconds);
            spent.0 += after[0] - before[0];
            spent.1 += after[1] - before[1];
            spent.2 += load.count();
            rounds.push(load);
        }
    }
    let [theirs, ours] = rounds.map(median);
    report.beside(name, "1/s", Better::Higher, ours.per_second, PEER, theirs.per_second);
    let each = |seconds: f64, count: usize| seconds * 1e6 / count.max(1) as f64;
    let [theirs_each, ours_each] = spent.map(|(server, _, count)| each(server, count));
    report.beside("  the server's processor time", "us", Better::Lower, ours_each, PEER, theirs_each);
    let [theirs_each, ours_each] = spent.map(|(_, clients, count)| each(clients, count));
    report.beside("  its clients' processor time", "us", Better::Lower, ours_each, PEER, theirs_each);
    for (quantile, label) in [(0.5, "p50"), (0.99, "p99")] {
        let (ours, theirs) = (ours.quantile_ms(quantile), theirs.quantile_ms(quantile));
        report.beside(format!("  {label}"), "ms", Better::Lower, ours, PEER, theirs);
    }
    if ours.errors + theirs.errors > 0 {
        println!("  errors: {} of ours, {} of etcd's", ours.errors, theirs.errors);
    }
    Ok(())
}

/// The round in the middle; with the errors of all.
fn median(mut rounds: Vec<Measured>) -> Measured {
    let errors = rounds.iter().map(|round| round.errors).sum();
    rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    let mut middle = rounds.swap_remove(rounds.len() / 2);
    middle.errors = errors;
    middle
}

/// Encodes what a client sends.
fn request<M: Message>(of: impl Fn(usize, usize) -> M + Send + Sync + 'static) -> Request {
    // A vector grows as it needs to, so that encoding into one cannot fail.
    Box::new(move |client, n, into| {
        let _ = of(client, n).encode(into);
    })
}

fn put() -> Call {
    Call {
        path: "/etcdserverpb.KV/Put",
        kind: Kind::Unary,
        request: request(|number, n| PutRequest {
            key: format!("/bench/put/{number}/{}", n % 100).into(),
            value: Bytes::from_static(VALUE),
            ..PutRequest::default()
        }),
        good: |answer| PutResponse::decode(answer).is_ok_and(|answer| answer.header.is_some()),
    }
}

async fn fill(server: &Server) -> anyhow::Result<()> {
    for n in 0..LISTED {
        let (key, value) = (format!("/bench/list/{n:04}").into(), Bytes::from_static(VALUE));
        server.client(n).kv.put(PutRequest { key, value, ..PutRequest::default() }).await?;
    }
    Ok(())
}

/// Returns true if an answer holds all values: they are most of its bytes.
fn values(answer: &[u8], count: usize) -> bool {
    answer.len() / VALUE.len() / count == 1
}

fn get() -> Call {
    Call {
        path: "/etcdserverpb.KV/Range",
        kind: Kind::Unary,
        request: request(|number, n| RangeRequest {
            key: format!("/bench/list/{:04}", (number * 31 + n) % LISTED).into(),
            ..RangeRequest::default()
        }),
        good: |answer| values(answer, 1),
    }
}

fn list() -> Call {
    Call {
        request: request(|_, _| RangeRequest {
            key: "/bench/list/".into(),
            range_end: "/bench/list0".into(),
            ..RangeRequest::default()
        }),
        good: |answer| values(answer, LISTED),
        ..get()
    }
}

/// 64 writers and 25 watches of all they write: how many events a second reach the watches.
async fn churn(report: &mut Report, name: &str, time: Duration, servers: [&Server; 2]) -> anyhow::Result<()> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (server, rates) in servers.iter().zip(&mut rates) {
            rates.push(churn_once(server, time).await?);
        }
    }
    let [theirs, ours] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    let name = format!("{name}watch churn: events to 25 watches, 64 writers");
    report.beside(name, "1/s", Better::Higher, ours, PEER, theirs);
    Ok(())
}

async fn churn_once(server: &Server, time: Duration) -> anyhow::Result<f64> {
    let seen = Arc::new(AtomicU64::new(0));
    let mut watches = tokio::task::JoinSet::new();
    for n in 0..WATCHES {
        let (requests, sent) = mpsc::channel(1);
        let create = WatchCreateRequest {
            key: "/bench/put/".into(),
            range_end: "/bench/put0".into(),
            ..WatchCreateRequest::default()
        };
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
        let mut client = server.client(n).watch;
        let mut responses = client.watch(ReceiverStream::new(sent)).await?.into_inner();
        responses.message().await?.context("the watch was not created")?;
        let seen = seen.clone();
        watches.spawn(async move {
            let _open = requests;
            while let Ok(Some(response)) = responses.message().await {
                seen.fetch_add(response.events.len() as u64, Ordering::Relaxed);
            }
        });
    }
    let begun = Instant::now();
    let written = server.load(64, time, put()).await?;
    let expected = (written.count() * WATCHES) as u64;
    while seen.load(Ordering::Relaxed) < expected {
        anyhow::ensure!(
            begun.elapsed() < time + Duration::from_secs(60),
            "{} of {expected} events came",
            seen.load(Ordering::Relaxed)
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(expected as f64 / begun.elapsed().as_secs_f64())
}

/// 64 holders, each keeping its own lease alive on a stream of its own.
async fn keep_alive(
    report: &mut Report,
    name: &str,
    time: Duration,
    servers: [&Server; 2],
) -> anyhow::Result<()> {
    const HOLDERS: usize = 64;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (server, rates) in servers.iter().zip(&mut rates) {
            let mut leases = Vec::new();
            for n in 0..HOLDERS {
                let mut client = server.client(n).lease;
                let granted = client.lease_grant(LeaseGrantRequest { ttl: 60, id: 0 }).await?;
                leases.push(granted.into_inner().id);
            }
            let call = Call {
                path: "/etcdserverpb.Lease/LeaseKeepAlive",
                kind: Kind::Stream,
                request: request(move |holder, _| LeaseKeepAliveRequest { id: leases[holder] }),
                good: |answer| LeaseKeepAliveResponse::decode(answer).is_ok_and(|answer| answer.ttl > 0),
            };
            rates.push(server.load(HOLDERS, time, call).await?);
        }
    }
    let [theirs, ours] = rates.map(median);
    let name = format!("{name}lease keep-alives, {HOLDERS} holders");
    report.beside(name, "1/s", Better::Higher, ours.per_second, PEER, theirs.per_second);
    Ok(())
}
