//! Load test: 256 GPUs, three watchers, and calls at a node's rate and at a hundred times that.
//!
//! ```text
//! cargo build --release -p orlop
//! cargo run --release -p orlop-device --example load -- target/release/orlop [memory|file]
//! ```
//!
//! Calls are sent on a schedule, whether or not earlier ones have been answered, and each is timed from when
//! it was due: a server that stalls is charged for everyone who waited. Each figure stands beside its
//! target, and the program fails if one is missed.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use orlop_device_client::{
    Connect, Connection, Status,
    api::{gpu_service_client::GpuServiceClient, *},
};

const GPUS: usize = 256;
const WATCHERS: usize = 3;
/// Rate of a busy node: a status from each GPU every ten seconds, and as many reads.
const NODE_RATE: u64 = 50;
const SECONDS: u64 = 8;
const IDLE_KIB_MAX: u64 = 20 << 10;
const LOAD_KIB_MAX: u64 = 32 << 10;
const START_MS_MAX: f64 = 30.0;

type Client = GpuServiceClient<Connection>;
type Failure = Box<dyn Error + Send + Sync>;

/// Resident memory of a process, and its anonymous part.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Resident {
    kib: u64,
    own_kib: u64,
}

/// The server under test; it goes with this.
struct Server {
    child: Child,
    folder: PathBuf,
    socket: PathBuf,
    started_ms: f64,
}

impl Server {
    fn start(program: &str, storage: &str) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("orlop-load-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let socket = folder.join("d.sock");
        let storage = match storage {
            "memory" => "memory".to_owned(),
            _ => format!("sqlite://{}", folder.join("state.db").display()),
        };
        let began = Instant::now();
        let child = Command::new(program)
            .args(["device", "serve", "--log", "warn", "--storage-endpoint", &storage])
            .args(["--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0"])
            .args(["--bind-address", &format!("unix://{}", socket.display())])
            .stdout(Stdio::null())
            .spawn()?;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            if began.elapsed() > Duration::from_secs(10) {
                return Err("the server does not start".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let started_ms = began.elapsed().as_secs_f64() * 1000.0;
        Ok(Self { child, folder, socket, started_ms })
    }

    fn resident(&self) -> Resident {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let kib = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
        };
        Resident { kib: kib("VmRSS:"), own_kib: kib("RssAnon:") }
    }

    fn client(&self) -> Result<Client, Failure> {
        let connection = Connect::to(format!("unix://{}", self.socket.display())).open()?;
        Ok(GpuServiceClient::new(connection).max_decoding_message_size(16 << 20))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Latencies by verb.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<BTreeMap<&'static str, Vec<Duration>>>>);

impl Times {
    fn add(&self, kind: &'static str, time: Duration) {
        if let Ok(mut times) = self.0.lock() {
            times.entry(kind).or_default().push(time);
        }
    }
}

fn name(number: usize) -> String {
    format!("gpu-{number:03}")
}

async fn create(mut client: Client, number: usize) -> Result<(), Status> {
    let meta = ObjectMeta { name: Some(name(number)), ..ObjectMeta::default() };
    let spec = GpuSpec { uuid: format!("GPU-{number:08x}-3f6c-4d9e-9a53-2f9f6f0e7c11") };
    let gpu = Gpu { object_meta: Some(meta), spec: Some(spec), ..Gpu::default() };
    client.create_gpu(CreateGpuRequest { gpu: Some(gpu), opts: None }).await.map(drop)
}

async fn update_status(mut client: Client, number: usize, turn: u64) -> Result<(), Status> {
    let condition = |kind: &str| Condition {
        r#type: kind.into(),
        status: if turn.is_multiple_of(2) { "True" } else { "False" }.into(),
        reason: format!("Turn{turn}"),
        message: "as the load test says".into(),
        ..Condition::default()
    };
    let conditions = ["Ready", "MemoryHealthy", "ThermalHealthy", "XidHealthy"].map(condition).to_vec();
    let status = GpuStatus { conditions, recommended_action: None };
    let meta = ObjectMeta { name: Some(name(number)), ..ObjectMeta::default() };
    let gpu = Gpu { object_meta: Some(meta), status: Some(status), ..Gpu::default() };
    client.update_gpu_status(UpdateGpuStatusRequest { gpu: Some(gpu), opts: None }).await.map(drop)
}

/// One call of the mix: half statuses, most of the rest gets, and now and then a list or a replacement.
///
/// Deletes objects created `lag` rounds before, about a second, so that they exist by then.
async fn call(client: Client, turn: u64, first_turn: u64, lag: u64) -> Result<&'static str, Status> {
    // A large odd step visits every GPU before it comes back to one.
    let number = (turn * 97 % GPUS as u64) as usize;
    let mut client = client;
    match turn % 40 {
        0 => client.list_gpus(ListGpusRequest::default()).await.map(|_| "list"),
        1 => {
            // A GPU of its own, so that no other call misses it.
            create(client, GPUS + turn as usize).await.map(|()| "create")
        }
        2 if turn > first_turn + lag => {
            let created = name(GPUS + (turn - 1 - lag) as usize);
            let request = DeleteGpuRequest { name: created, ..DeleteGpuRequest::default() };
            client.delete_gpu(request).await.map(|_| "delete")
        }
        rest if rest % 2 == 0 => update_status(client, number, turn).await.map(|()| "update_status"),
        _ => {
            let request = GetGpuRequest { name: name(number), ..GetGpuRequest::default() };
            client.get_gpu(request).await.map(|_| "get")
        }
    }
}

async fn load(
    server: &Server,
    rate: u64,
    first_turn: u64,
    seen: &AtomicU64,
) -> Result<(Times, Resident), Failure> {
    let (times, client) = (Times::default(), server.client()?);
    let lag = rate.next_multiple_of(40);
    let mut tasks = tokio::task::JoinSet::new();
    let began = Instant::now();
    let mut resident = Resident::default();
    let before = seen.load(Ordering::Relaxed);
    for number in 0..rate * SECONDS {
        let due = began + Duration::from_secs_f64(number as f64 / rate as f64);
        tokio::time::sleep_until(due.into()).await;
        let (client, times) = (client.clone(), times.clone());
        tasks.spawn(async move {
            let kind = call(client, first_turn + number, first_turn, lag).await?;
            times.add(kind, due.elapsed());
            Ok::<_, Status>(())
        });
        while let Some(done) = tasks.try_join_next() {
            done??;
        }
        if number % rate.div_ceil(20) == 0 {
            resident = resident.max(server.resident());
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let rate_done = (rate * SECONDS) as f64 / began.elapsed().as_secs_f64();
    let delivered = seen.load(Ordering::Relaxed) - before;
    println!("  {rate_done:.0} calls/s done, {delivered} events delivered to {WATCHERS} watchers");
    Ok((times, resident.max(server.resident())))
}

/// Prints each figure beside its target; whether all were met.
fn report(times: &Times) -> bool {
    let Ok(mut times) = times.0.lock() else { return false };
    let mut good = true;
    for (kind, times) in times.iter_mut() {
        times.sort();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1;
            times[index].as_secs_f64() * 1000.0
        };
        let (target95, target99) = if *kind == "list" { (20.0, 40.0) } else { (15.0, 30.0) };
        let (p50, p95, p99) = (at(0.5), at(0.95), at(0.99));
        let met = p95 < target95 && p99 < target99;
        good &= met;
        println!(
            "  {kind:<14}{:>7} calls   p50 {p50:7.2} ms   p95 {p95:7.2} ms (< {target95})   p99 {p99:7.2} ms (< {target99})   {}",
            times.len(),
            if met { "ok" } else { "MISSED" }
        );
    }
    good
}

fn judge(what: &str, found: f64, limit: f64, unit: &str) -> bool {
    let met = found < limit;
    println!("  {what:<14}{found:.1} {unit} (< {limit})   {}", if met { "ok" } else { "MISSED" });
    met
}

fn judge_resident(found: Resident, what: &str, limit_kib: u64) -> bool {
    let mib = |kib: u64| kib as f64 / 1024.0;
    let what = format!("{what} RSS");
    let met = judge(what.trim(), mib(found.kib), mib(limit_kib), "MiB");
    println!("  {:<14}{:.1} MiB of it, the rest is the program's file", "its own", mib(found.own_kib));
    met
}

async fn measure(program: &str, storage: &str) -> Result<bool, Failure> {
    println!("storage: {storage}");
    let server = Server::start(program, storage)?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut good = judge("start", server.started_ms, START_MS_MAX, "ms");
    good &= judge_resident(server.resident(), "idle", IDLE_KIB_MAX);
    let client = server.client()?;
    for number in 0..GPUS {
        create(client.clone(), number).await?;
    }
    let seen = Arc::new(AtomicU64::new(0));
    for _ in 0..WATCHERS {
        let mut watch = server.client()?.watch_gpus(WatchGpusRequest::default()).await?.into_inner();
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Ok(Some(_)) = watch.message().await {
                seen.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut first_turn = 0;
    for rate in [NODE_RATE, NODE_RATE * 100] {
        println!(" {rate} calls/s");
        let (times, resident) = load(&server, rate, first_turn, &seen).await?;
        good &= report(&times);
        good &= judge_resident(resident, "", LOAD_KIB_MAX);
        first_turn += rate * SECONDS + 40 - rate * SECONDS % 40;
    }
    Ok(good)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let program = std::env::args().nth(1).ok_or("say where the orlop program is")?;
    let only = std::env::args().nth(2);
    let mut good = true;
    for storage in ["memory", "file"] {
        if only.as_deref().is_none_or(|only| only == storage) {
            good &= measure(&program, storage).await?;
        }
    }
    if good { Ok(()) } else { Err("a target was missed".into()) }
}
