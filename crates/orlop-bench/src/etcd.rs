//! The etcd endpoint beside Debian's etcd: the same clients, the same loads, one after the other.
//!
//! Both run as processes of their own on the same disk, and each load runs several rounds that alternate
//! between them, so that what else the machine does falls on both. The median round counts.

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
use orlop_etcd::{
    Client, ClientTls,
    pb::etcdserverpb::{
        LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, PutRequest, RangeRequest,
        WatchCreateRequest, WatchRequest, watch_request::RequestUnion,
    },
};
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    load::{self, Measured},
    peer::{Peer, free_port},
    report::{Better, Report},
};

const PEER: &str = "etcd";
const VALUE_BYTES: usize = 256;
const ROUNDS: usize = 3;
const WATCHES: usize = 25;
const LISTED: usize = 500;

/// What to measure, and for how long.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Each load of each round.
    pub(crate) time: Duration,
    /// The program under test; `orlop` beside this one by default.
    pub(crate) program: Option<PathBuf>,
    /// Where orlop's data goes instead of a SQLite file.
    pub(crate) endpoint: Option<String>,
}

/// A server under test.
struct Server {
    process: Process,
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

    fn client(&self, n: usize, clients: usize) -> Client {
        self.clients[n % connections(clients).min(self.clients.len())].clone()
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

/// Runs every load on both.
pub(crate) async fn run(report: &mut Report, folder: &Path, plan: &Plan) -> anyhow::Result<()> {
    let peer = Peer::start(&["--quota-backend-bytes", "8589934592"]).map_err(|error| anyhow!(error))?;
    let url = peer.url.clone();
    let etcd = Arc::new(Server { process: Process::Etcd(peer), clients: connect(&url).await? });
    let orlop = Arc::new(start(folder, plan).await?);
    for clients in [1, 64, 1000] {
        both(report, &format!("put, {clients} clients"), clients, plan.time, [&etcd, &orlop], put).await?;
    }
    for server in [&etcd, &orlop] {
        fill(server).await?;
    }
    both(report, "get, 64 clients", 64, plan.time, [&etcd, &orlop], get).await?;
    both(report, "list 500 keys, 8 clients", 8, plan.time, [&etcd, &orlop], list).await?;
    churn(report, plan.time, [&etcd, &orlop]).await?;
    keep_alive(report, plan.time, [&etcd, &orlop]).await?;
    for (name, field) in [("resident memory at the end", "VmRSS"), ("resident memory at the most", "VmHWM")] {
        let (theirs, ours) = (etcd.resident_mib(field), orlop.resident_mib(field));
        report.beside(name, "MiB", Better::Lower, ours, PEER, theirs);
    }
    Ok(())
}

async fn start(folder: &Path, plan: &Plan) -> anyhow::Result<Server> {
    let beside = std::env::current_exe()?.with_file_name("orlop");
    let program = plan.program.clone().unwrap_or(beside);
    let url = format!("http://127.0.0.1:{}", free_port().map_err(|error| anyhow!(error))?);
    let data =
        plan.endpoint.clone().unwrap_or_else(|| format!("sqlite://{}", folder.join("orlop.db").display()));
    let child = Command::new(&program)
        .args(["etcd", "--listen-address", &url, "--endpoint", &data])
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("{}: build it with `cargo build --release -p orlop`", program.display()))?;
    Ok(Server { process: Process::Orlop(child), clients: connect(&url).await? })
}

async fn connect(url: &str) -> anyhow::Result<Vec<Client>> {
    let begun = Instant::now();
    let mut clients = Vec::new();
    while clients.len() < connections(1000) {
        match Client::connect(url, &ClientTls::default()).await {
            Ok(client) => clients.push(client),
            Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    Ok(clients)
}

/// Runs a load on both servers in turn and reports the median rounds.
async fn both<O, F>(
    report: &mut Report,
    name: &str,
    clients: usize,
    time: Duration,
    servers: [&Arc<Server>; 2],
    operation: O,
) -> anyhow::Result<()>
where
    O: Fn(Client, usize, usize) -> F + Copy + Send + Sync + 'static,
    F: Future<Output = bool> + Send,
{
    let mut measured = [Vec::new(), Vec::new()];
    // Processor time of each server, and the operations it went into.
    let mut spent = [(0.0, 0); 2];
    for _ in 0..ROUNDS {
        for ((server, measured), spent) in servers.iter().zip(&mut measured).zip(&mut spent) {
            let server = Arc::clone(server);
            let (id, before) = (server.id(), load::processor_seconds(server.id()));
            let load = load::run(clients, time, move |client, n| {
                operation(server.client(client, clients), client, n)
            });
            let load = load.await;
            spent.0 += load::processor_seconds(id) - before;
            spent.1 += load.count();
            measured.push(load);
        }
    }
    let [theirs, ours] = measured.map(median);
    report.beside(name, "1/s", Better::Higher, ours.per_second, PEER, theirs.per_second);
    let [theirs_each, ours_each] = spent.map(|(seconds, count)| seconds * 1e6 / count.max(1) as f64);
    report.beside("  the server's processor time", "us", Better::Lower, ours_each, PEER, theirs_each);
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

async fn put(mut client: Client, number: usize, n: usize) -> bool {
    let request = PutRequest {
        key: format!("/bench/put/{number}/{}", n % 100).into(),
        value: vec![b'x'; VALUE_BYTES].into(),
        ..PutRequest::default()
    };
    client.kv.put(request).await.is_ok()
}

async fn fill(server: &Server) -> anyhow::Result<()> {
    for n in 0..LISTED {
        let key = format!("/bench/list/{n:04}").into();
        let value = vec![b'x'; VALUE_BYTES].into();
        server.client(n, 1000).kv.put(PutRequest { key, value, ..PutRequest::default() }).await?;
    }
    Ok(())
}

async fn get(mut client: Client, number: usize, n: usize) -> bool {
    let key = format!("/bench/list/{:04}", (number * 31 + n) % LISTED).into();
    let answer = client.kv.range(RangeRequest { key, ..RangeRequest::default() }).await;
    answer.is_ok_and(|answer| answer.get_ref().kvs.len() == 1)
}

async fn list(mut client: Client, _: usize, _: usize) -> bool {
    let request = RangeRequest {
        key: "/bench/list/".into(),
        range_end: "/bench/list0".into(),
        ..RangeRequest::default()
    };
    client.kv.range(request).await.is_ok_and(|answer| answer.get_ref().kvs.len() == LISTED)
}

/// 64 writers and 25 watches of all they write: how many events a second reach the watches.
async fn churn(report: &mut Report, time: Duration, servers: [&Arc<Server>; 2]) -> anyhow::Result<()> {
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
    report.beside("watch churn: events to 25 watches, 64 writers", "1/s", Better::Higher, ours, PEER, theirs);
    Ok(())
}

async fn churn_once(server: &Arc<Server>, time: Duration) -> anyhow::Result<f64> {
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
        let mut client = server.client(n, 1000).watch;
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
    let writer = server.clone();
    let written = load::run(64, time, move |client, n| put(writer.client(client, 64), client, n)).await;
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

type KeepAlive = (mpsc::Sender<LeaseKeepAliveRequest>, Streaming<LeaseKeepAliveResponse>, i64);

/// 64 holders, each keeping its own lease alive on a stream of its own.
async fn keep_alive(report: &mut Report, time: Duration, servers: [&Arc<Server>; 2]) -> anyhow::Result<()> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (server, rates) in servers.iter().zip(&mut rates) {
            let mut holders: Vec<Arc<Mutex<KeepAlive>>> = Vec::new();
            for n in 0..64 {
                let mut client = server.client(n, 64).lease;
                let id = client.lease_grant(LeaseGrantRequest { ttl: 60, id: 0 }).await?.into_inner().id;
                let (requests, sent) = mpsc::channel(1);
                requests.send(LeaseKeepAliveRequest { id }).await?;
                let mut responses = client.lease_keep_alive(ReceiverStream::new(sent)).await?.into_inner();
                responses.message().await?;
                holders.push(Arc::new(Mutex::new((requests, responses, id))));
            }
            let measured = load::run(64, time, move |holder, _| {
                let holder = holders[holder].clone();
                async move {
                    let (requests, responses, id) = &mut *holder.lock().await;
                    requests.send(LeaseKeepAliveRequest { id: *id }).await.is_ok()
                        && matches!(responses.message().await, Ok(Some(answer)) if answer.ttl > 0)
                }
            });
            rates.push(measured.await);
        }
    }
    let [theirs, ours] = rates.map(median);
    let name = "lease keep-alives, 64 holders";
    report.beside(name, "1/s", Better::Higher, ours.per_second, PEER, theirs.per_second);
    Ok(())
}
