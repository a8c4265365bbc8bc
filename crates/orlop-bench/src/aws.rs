//! AWS: Functions and domains to Ready on a simulator, and what it costs to look at them when nothing has changed.
//!
//! The simulator is ministack, from PyPI. The limits of calls that AWS documents are off: the simulator has none, and with
//! them 200 domain names alone take 100 minutes.

use std::{
    collections::HashMap,
    fs::File,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{api::Server, client::Client, load, report::Report};

/// Requests at once when objects are created.
const AT_ONCE: usize = 16;
/// Time in which idle controllers are watched.
const IDLE: Duration = Duration::from_secs(10);
const FUNCTIONS: &str = "/apis/lambda.services.k8s.aws/v1alpha1/namespaces/default/functions";
const DOMAINS: &str = "/apis/bridge.ack.tubi.internal/v1alpha1/namespaces/default/apigatewaydomains";
/// Factor on the waits between looks at AWS, which are made for AWS' own time.
const WAIT_SCALE: f64 = 0.1;

/// Plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) functions: usize,
    pub(crate) domains: usize,
    pub(crate) deadline: Duration,
}

/// A process that ends with the benchmark.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command, log: &Path) -> anyhow::Result<Process> {
    let log = File::options().create(true).append(true).open(log)?;
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    Ok(Process(child.with_context(|| format!("cannot start {command:?}"))?))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Sends a request in plain HTTP. Returns status and body.
fn http(port: u16, method: &str, path: &str, service: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let scope = format!("Credential=bench/20200101/us-east-1/{service}/aws4_request");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\
         Authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((code, body.to_owned()))
}

/// The controllers, the server and the simulator.
struct Stage {
    client: Client,
    server: Server,
    controllers: Process,
    _simulator: Process,
    simulator_port: u16,
    metrics_port: u16,
    deadline: Duration,
}

impl Stage {
    async fn start(
        orlop: &Path,
        orlop_aws: &Path,
        folder: &Path,
        deadline: Duration,
    ) -> anyhow::Result<Self> {
        let python = orlop_testbed::python::aws_simulators().map_err(anyhow::Error::msg)?;
        let (simulator_port, metrics_port) = (free_port()?, free_port()?);
        let mut command = Command::new(python);
        command.args(["-c", "from ministack.app import main; main()"]);
        command.env("BIND_HOST", "127.0.0.1").env("GATEWAY_PORT", simulator_port.to_string());
        let simulator = spawn(&mut command, &folder.join("simulator.log"))?;
        let server = Server::start(orlop, folder)?;
        let client = Client::connect(&server.kubeconfig, 8).await?;
        let controllers = controllers(orlop_aws, &server, folder, simulator_port, metrics_port)?;
        let stage = Self {
            client,
            server,
            controllers,
            _simulator: simulator,
            simulator_port,
            metrics_port,
            deadline,
        };
        stage.until_ready().await?;
        Ok(stage)
    }

    /// Waits until the controllers have heard from the simulator who they are.
    async fn until_ready(&self) -> anyhow::Result<()> {
        self.until("the controllers are ready", async || {
            Ok(http(self.metrics_port, "GET", "/readyz", "").is_ok_and(|(code, _)| code == 200))
        })
        .await
    }

    async fn until(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.deadline;
        while !look().await? {
            if Instant::now() > deadline {
                bail!("{what}: not within {:?}", self.deadline);
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn create(
        &self,
        path: &str,
        api_version: &str,
        kind: &str,
        name: &str,
        spec: Value,
    ) -> anyhow::Result<()> {
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let (code, body) = self.client.post(path, &object).await?;
        ensure!(code == 201, "{kind} {name}: {code}: {}", String::from_utf8_lossy(&body));
        Ok(())
    }

    /// Creates an object of ACK's and waits for it.
    async fn create_ready(
        &self,
        service: &str,
        plural: &str,
        kind: &str,
        name: &str,
        spec: Value,
    ) -> anyhow::Result<()> {
        let version = format!("{service}.services.k8s.aws/v1alpha1");
        let path = format!("/apis/{version}/namespaces/default/{plural}");
        self.create(&path, &version, kind, name, spec).await?;
        self.until(kind, async || {
            let found: Value = serde_json::from_slice(&self.client.get(&format!("{path}/{name}")).await?.1)?;
            Ok(is_ready(&found))
        })
        .await
    }

    async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut list: Value = serde_json::from_slice(&self.client.get(path).await?.1)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Waits until so many objects are Ready. Returns the time since the beginning.
    async fn all_ready(&self, path: &str, count: usize, began: Instant) -> anyhow::Result<Duration> {
        self.until(path, async || {
            sleep(Duration::from_millis(400)).await;
            Ok(self.list(path).await?.iter().filter(|object| is_ready(object)).count() >= count)
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Calls of AWS so far: reads, and what changes something.
    fn calls(&self) -> anyhow::Result<(f64, f64)> {
        let (_, text) = http(self.metrics_port, "GET", "/metrics", "")?;
        let (mut reads, mut writes) = (0.0, 0.0);
        for line in text.lines().filter(|line| line.starts_with("ack_outbound_api_requests_total{")) {
            let count: f64 = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default();
            match line.contains("op_type=\"READ") {
                true => reads += count,
                false => writes += count,
            }
        }
        Ok((reads, writes))
    }

    /// Waits until no call has been made for some time.
    async fn settled(&self) -> anyhow::Result<(f64, f64)> {
        let mut last = self.calls()?;
        let mut since = Instant::now();
        self.until("calls end", async || {
            let now = self.calls()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            Ok(since.elapsed() > Duration::from_secs(2))
        })
        .await?;
        Ok(last)
    }

    async fn versions(&self) -> anyhow::Result<HashMap<String, String>> {
        let mut all = HashMap::new();
        for path in [FUNCTIONS, DOMAINS] {
            for object in self.list(path).await? {
                let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
                all.insert(text("uid"), text("resourceVersion"));
            }
        }
        Ok(all)
    }
}

fn controllers(
    program: &Path,
    server: &Server,
    folder: &Path,
    simulator_port: u16,
    metrics_port: u16,
) -> anyhow::Result<Process> {
    let mut command = Command::new(program);
    command.args([
        "run",
        "--aws-region",
        "us-east-1",
        "--no-leader-election",
        "--allow-unsafe-aws-endpoint-urls",
    ]);
    command.args(["--aws-endpoint-url", &format!("http://127.0.0.1:{simulator_port}")]);
    command.args(["--metrics-addr", &format!("127.0.0.1:{metrics_port}"), "--healthz-addr", ""]);
    command.args(["--call-rate-scale", "0", "--wait-scale", &WAIT_SCALE.to_string()]);
    command.env("KUBECONFIG", &server.kubeconfig).env("RUST_LOG", "warn");
    command.env("AWS_ACCESS_KEY_ID", "bench").env("AWS_SECRET_ACCESS_KEY", "bench");
    spawn(&mut command, &folder.join("orlop-aws.log"))
}

fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Runs the benchmark.
pub(crate) async fn run(
    report: &mut Report,
    orlop: &Path,
    orlop_aws: &Path,
    folder: &Path,
    plan: &Plan,
) -> anyhow::Result<()> {
    let mut stage = Stage::start(orlop, orlop_aws, folder, plan.deadline).await?;
    stage
        .create_ready("route53", "hostedzones", "HostedZone", "zone", json!({"name": "example.com."}))
        .await?;
    stage
        .create_ready("acm", "certificates", "Certificate", "all", json!({"domainName": "*.example.com"}))
        .await?;
    stage
        .create_ready("apigatewayv2", "apis", "API", "shop", json!({"name": "shop", "protocolType": "HTTP"}))
        .await?;
    let spec = json!({"apiRef": {"from": {"name": "shop"}}, "stageName": "$default", "autoDeploy": true});
    stage.create_ready("apigatewayv2", "stages", "Stage", "shop", spec).await?;

    let (cpu, calls) = (load::processor_seconds(stage.controllers.0.id()), stage.calls()?);
    let began = Instant::now();
    let functions = stream::iter(0..plan.functions).map(|number| {
        let name = format!("f{number}");
        let spec = json!({"name": name, "runtime": "python3.12", "handler": "main.handler",
            "role": "arn:aws:iam::000000000000:role/any", "code": {"zipFile": "UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA=="}});
        let stage = &stage;
        async move { stage.create(FUNCTIONS, "lambda.services.k8s.aws/v1alpha1", "Function", &name, spec).await }
    });
    functions.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let took = stage.all_ready(FUNCTIONS, plan.functions, began).await?;
    report.alone(format!("aws: {} Functions to Ready", plan.functions), "s", took.as_secs_f64());
    let after = stage.settled().await?;
    let each = |count: f64, of: usize| count / of.max(1) as f64;
    report.alone(
        "aws: calls for each Function",
        "",
        each(after.0 + after.1 - calls.0 - calls.1, plan.functions),
    );

    let calls = after;
    let began = Instant::now();
    let domains = stream::iter(0..plan.domains).map(|number| {
        let name = format!("d{number}");
        let spec = json!({"domain": format!("{name}.example.com"), "apiRef": {"name": "shop"}});
        let stage = &stage;
        async move {
            stage.create(DOMAINS, "bridge.ack.tubi.internal/v1alpha1", "APIGatewayDomain", &name, spec).await
        }
    });
    domains.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    let took = stage.all_ready(DOMAINS, plan.domains, began).await?;
    report.alone(format!("aws: {} domains to Ready", plan.domains), "s", took.as_secs_f64());
    let after = stage.calls()?;
    report.alone("aws: calls for each domain", "", each(after.0 + after.1 - calls.0 - calls.1, plan.domains));
    let used = load::processor_seconds(stage.controllers.0.id()) - cpu;
    report.alone("aws: processor time to Ready", "s", used);
    let resident = |stage: &Stage| load::status_mib(&stage.controllers.0.id().to_string(), "VmRSS");
    report.alone("aws: memory with all Ready", "MiB", resident(&stage));

    // Every object is looked at again by a new process.
    let versions = stage.versions().await?;
    resync(report, &mut stage, orlop_aws, folder, plan, versions).await?;

    let cpu = load::processor_seconds(stage.controllers.0.id());
    let calls = stage.calls()?;
    sleep(IDLE).await;
    let (cpu_now, calls_now) = (load::processor_seconds(stage.controllers.0.id()), stage.calls()?);
    report.alone("aws: processor time while idle", "ms/s", (cpu_now - cpu) * 1e3 / IDLE.as_secs_f64());
    report.alone("aws: reads while idle", "/s", (calls_now.0 - calls.0) / IDLE.as_secs_f64());
    report.alone("aws: memory after a resync", "MiB", resident(&stage));

    // Somebody deletes a domain name; the next look notices.
    let began = Instant::now();
    let path = "/v2/domainnames/d0.example.com";
    http(stage.simulator_port, "DELETE", path, "apigateway")?;
    stage
        .until("the domain name is back", async || {
            Ok(http(stage.simulator_port, "GET", path, "apigateway").is_ok_and(|(code, _)| code == 200))
        })
        .await?;
    let name = format!("aws: drift repaired, looks every {} s", 300.0 * WAIT_SCALE);
    report.alone(name, "s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Measures the first look of a new process at every object.
async fn resync(
    report: &mut Report,
    stage: &mut Stage,
    orlop_aws: &Path,
    folder: &Path,
    plan: &Plan,
    versions: HashMap<String, String>,
) -> anyhow::Result<()> {
    let _ = stage.controllers.0.kill();
    let _ = stage.controllers.0.wait();
    stage.controllers =
        controllers(orlop_aws, &stage.server, folder, stage.simulator_port, stage.metrics_port)?;
    stage.until_ready().await?;
    let began = Instant::now();
    let (reads, writes) = stage.settled().await?;
    report.alone("aws: look at everything again", "s", began.elapsed().as_secs_f64() - 2.0);
    report.alone(
        "aws: reads for each object of a resync",
        "",
        reads / (plan.functions + plan.domains).max(1) as f64,
    );
    report.alone("aws: writes of a resync", "", writes);
    let now = stage.versions().await?;
    let changed = versions.iter().filter(|(uid, version)| now.get(*uid) != Some(version)).count();
    report.alone("aws: objects written by a resync", "", changed as f64);
    Ok(())
}
