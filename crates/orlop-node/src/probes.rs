//! Probes and hooks of containers.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Container as Spec, HTTPGetAction, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::time::{sleep, timeout};

use crate::{
    dial::{self, HttpGet},
    runtime::Container,
};

/// Version in the User-Agent of probes.
const VERSION: &str = "1.37";
/// Bytes of a probe's output in an event.
const OUTPUT_BYTES_MAX: usize = 1024;

/// Kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// Returns the name, as events have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    pub(crate) fn of(self, spec: &Spec) -> Option<&Probe> {
        match self {
            Self::Startup => spec.startup_probe.as_ref(),
            Self::Liveness => spec.liveness_probe.as_ref(),
            Self::Readiness => spec.readiness_probe.as_ref(),
        }
    }
}

/// Result of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It succeeded.
    Success,
    /// It failed, with what it said.
    Failure(String),
    /// The probe itself could not be run.
    Error(String),
}

impl Outcome {
    /// Returns true if nobody listened where the probe connected to.
    pub(crate) fn is_refused_connection(&self) -> bool {
        matches!(self, Self::Failure(text) if text.contains("connection refused"))
    }
}

/// Verdict over several probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Healthy,
    Unhealthy,
}

/// Counts results until they make a verdict.
#[derive(Debug)]
pub(crate) struct Counter {
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<bool>,
    run: u32,
}

impl Counter {
    pub(crate) fn new(probe: &Probe) -> Self {
        let threshold = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
        };
        Self {
            success_threshold: threshold(probe.success_threshold, 1),
            failure_threshold: threshold(probe.failure_threshold, 3),
            last: None,
            run: 0,
        }
    }

    /// Counts a result, and returns the verdict once enough are equal.
    pub(crate) fn count(&mut self, succeeded: bool) -> Option<Verdict> {
        self.run = if self.last == Some(succeeded) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(succeeded);
        let threshold = if succeeded { self.success_threshold } else { self.failure_threshold };
        (self.run >= threshold).then_some(if succeeded { Verdict::Healthy } else { Verdict::Unhealthy })
    }
}

/// A container to probe.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) container: Container,
    pub(crate) spec: Spec,
    /// Address of the pod.
    pub(crate) host: String,
}

/// Report of a probe to its pod's worker.
#[derive(Debug)]
pub(crate) enum Report {
    /// A probe did not succeed.
    Failed(Outcome),
    /// Enough results are equal.
    Verdict(Verdict),
}

/// Probes a container until the future is dropped.
pub(crate) async fn run<F: Future<Output = ()>>(target: Target, kind: Kind, report: impl Fn(Report) -> F) {
    let Some(probe) = kind.of(&target.spec).cloned() else { return };
    let seconds = |value: Option<i32>, default: u64| {
        Duration::from_secs(value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default))
    };
    sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let period = seconds(probe.period_seconds, 10).max(Duration::from_secs(1));
    let mut counter = Counter::new(&probe);
    let mut verdict = None;
    loop {
        let outcome = once(&target, &probe).await;
        let succeeded = outcome == Outcome::Success;
        if !succeeded {
            report(Report::Failed(outcome)).await;
        }
        if let Some(next) = counter.count(succeeded)
            && verdict != Some(next)
        {
            verdict = Some(next);
            report(Report::Verdict(next)).await;
        }
        sleep(period).await;
    }
}

/// Runs a probe once.
async fn once(target: &Target, probe: &Probe) -> Outcome {
    let limit = probe.timeout_seconds.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
    let limit = Duration::from_secs(limit.unwrap_or(1));
    if let Some(action) = &probe.exec {
        let command = action.command.clone().unwrap_or_default();
        return match timeout(limit, target.container.run(command)).await {
            Ok(Ok(output)) if output.code == 0 => Outcome::Success,
            Ok(Ok(output)) => Outcome::Failure(cut(&output.text)),
            Ok(Err(error)) => Outcome::Error(error.to_string()),
            Err(_) => Outcome::Failure(format!(
                "command timed out: {:?} timed out after {}s",
                action.command.as_deref().unwrap_or_default().join(" "),
                limit.as_secs()
            )),
        };
    }
    if let Some(action) = &probe.http_get {
        let request = match http_request(target, action, "kube-probe") {
            Ok(request) => request,
            Err(error) => return Outcome::Error(error),
        };
        return match dial::http_get(&request, limit).await {
            Ok(answer) if (200..400).contains(&answer.code) => Outcome::Success,
            Ok(answer) => Outcome::Failure(format!("HTTP probe failed with statuscode: {}", answer.code)),
            Err(error) => Outcome::Failure(cut(&error)),
        };
    }
    if let Some(action) = &probe.tcp_socket {
        let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| target.host.clone());
        let Some(port) = port(&target.spec, &action.port) else {
            return Outcome::Error(unknown_port(&action.port));
        };
        return match timeout(limit, dial::connect(&host, port)).await {
            Ok(Ok(_)) => Outcome::Success,
            Ok(Err(error)) => Outcome::Failure(error),
            Err(_) => Outcome::Failure(format!("dial tcp {host}:{port}: i/o timeout")),
        };
    }
    if let Some(action) = &probe.grpc {
        let Ok(port) = u16::try_from(action.port) else { return Outcome::Error("invalid port".to_owned()) };
        let service = action.service.as_deref().unwrap_or_default();
        return match timeout(limit, dial::grpc_health(&target.host, port, service)).await {
            Ok(Ok(())) => Outcome::Success,
            Ok(Err(error)) => Outcome::Failure(error),
            Err(_) => {
                Outcome::Failure(format!("timeout: health rpc did not complete within {}s", limit.as_secs()))
            }
        };
    }
    Outcome::Error("missing probe handler".to_owned())
}

/// Runs a hook to its end.
pub(crate) async fn hook(target: &Target, handler: &LifecycleHandler) -> Result<(), String> {
    if let Some(action) = &handler.exec {
        let command = action.command.clone().unwrap_or_default();
        let shown = command.join(" ");
        let output = target.container.run(command).await.map_err(|error| error.to_string())?;
        return match output.code {
            0 => Ok(()),
            code => Err(format!(
                "Exec lifecycle hook ([{shown}]) failed - error: command '{shown}' exited with {code}: {}, message: {:?}",
                "",
                cut(&output.text)
            )),
        };
    }
    if let Some(action) = &handler.http_get {
        let request = http_request(target, action, "kube-lifecycle")?;
        let answer = dial::http_get(&request, Duration::from_secs(3600)).await?;
        return match answer.code {
            200..400 => Ok(()),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        };
    }
    if let Some(action) = &handler.sleep {
        sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or_default())).await;
    }
    // Kubernetes accepts a tcpSocket hook, and runs nothing.
    Ok(())
}

fn http_request(target: &Target, action: &HTTPGetAction, agent: &str) -> Result<HttpGet, String> {
    let port = port(&target.spec, &action.port).ok_or_else(|| unknown_port(&action.port))?;
    let headers: Vec<(String, String)> = action
        .http_headers
        .iter()
        .flatten()
        .map(|header| (header.name.clone(), header.value.clone()))
        .collect();
    Ok(HttpGet {
        is_https: action.scheme.as_deref() == Some("HTTPS"),
        host: action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| target.host.clone()),
        port,
        path: action.path.clone().unwrap_or_default(),
        headers,
        user_agent: format!("{agent}/{VERSION}"),
    })
}

/// Returns the number of a port that may be a container port's name.
fn port(spec: &Spec, port: &IntOrString) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = spec.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())?
        }
    };
    u16::try_from(number).ok().filter(|number| *number > 0)
}

fn unknown_port(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => format!("invalid port number: {number}"),
        IntOrString::String(name) => format!("could not find port: {name:?}"),
    }
}

fn cut(text: &str) -> String {
    text.char_indices()
        .take_while(|(index, _)| *index < OUTPUT_BYTES_MAX)
        .map(|(_, character)| character)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_needs_as_many_equal_results_as_the_threshold() {
        let mut counter = Counter::new(&Probe { success_threshold: Some(2), ..Probe::default() });
        assert_eq!(counter.count(true), None);
        assert_eq!(counter.count(true), Some(Verdict::Healthy));
        assert_eq!(counter.count(false), None);
        assert_eq!(counter.count(false), None);
        assert_eq!(counter.count(false), Some(Verdict::Unhealthy));
        assert_eq!(counter.count(true), None);
    }
}
