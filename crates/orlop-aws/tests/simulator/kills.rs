//! `orlop-aws run` killed with SIGKILL between any two calls of AWS: nothing is left behind, nothing is there twice.
//!
//! The proxy holds a call for ever, before AWS sees it or after AWS has acted on it. The process dies with the call
//! unanswered, another one starts, and the simulator is counted. Each call of a life is the last one once: of the
//! create, of the update and of the delete.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    cases::{Case, KINDS, is_ready, prepare},
    harness::{Harness, of_account},
    inventory::inventory,
    process::{Gateway, Process},
    proxy::{Moment, Proxy},
    simulators::{Simulator, ministack},
};

/// Calls of a life at most.
const CALLS_MAX: usize = 120;
const PATIENCE: Duration = Duration::from_secs(120);

struct Ground {
    aws: Simulator,
    proxy: Proxy,
    harness: Harness,
    gateway: Gateway,
    account: String,
    kinds: String,
    process: Process,
}

impl Ground {
    async fn start(kind: &str, account: &str) -> Self {
        let all = KINDS.iter().find(|kinds| kinds[0] == kind).expect("a kind with a life");
        let aws = ministack(account);
        let proxy = Proxy::start(&aws.address).await;
        let harness = Harness::without_controllers(of_account(&proxy.address, account)).await;
        let gateway = Gateway::start(&harness.client).await;
        let kinds = all.join(",");
        let process =
            Process::start(&gateway, &proxy.address, account, &["--metrics-addr", "", "--kinds", &kinds]);
        let ground = Self { aws, proxy, harness, gateway, account: account.to_owned(), kinds, process };
        ground.harness.installed().await;
        ground.identified(0).await;
        ground
    }

    /// Waits until the process has made a call.
    async fn identified(&self, calls: usize) {
        self.harness
            .until("the process calls AWS", async || (self.proxy.calls() > calls).then_some(()))
            .await;
    }

    /// Kills the process.
    async fn kill(&mut self) {
        self.process.kill();
        self.proxy.at_rest().await;
    }

    /// Starts another process.
    async fn restart(&mut self) {
        let calls = self.proxy.calls();
        let more = ["--metrics-addr", "", "--kinds", &self.kinds];
        self.process = Process::start(&self.gateway, &self.proxy.address, &self.account, &more);
        self.identified(calls).await;
    }

    /// Waits until the object is as wanted and AWS has exactly so much.
    async fn settled(&self, case: &Case, changed: bool, expected: &[String], when: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.harness.get(&case.place).await;
            let mut done = object.as_ref().is_some_and(is_ready);
            if let Some((_, look)) = case.change.as_ref().filter(|_| changed && done) {
                done = look.is_shown(&self.aws).await;
            }
            let found = inventory(&self.aws).await;
            if done && found == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{when}: expected {expected:#?}, found {found:#?}; {:#}",
                object.unwrap_or_default()["status"]
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn create(&self, case: &Case) {
        self.harness.apply(&case.place, case.kind, json!({}), case.spec.clone()).await;
    }

    async fn change(&self, case: &Case) {
        if let Some((change, _)) = &case.change {
            self.harness.patch(&case.place, json!({"spec": change})).await;
        }
    }

    /// Waits until the process is held at a call, or a step is done. Returns the call, with the process dead.
    async fn held(
        &mut self,
        mut held: tokio::sync::oneshot::Receiver<String>,
        mut is_done: impl AsyncFnMut(&Self) -> bool,
    ) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(call) = held.try_recv() {
                self.kill().await;
                return Some(call);
            }
            if is_done(self).await {
                self.proxy.hold_none();
                // It may have been held between the two looks.
                let call = held.try_recv().ok();
                if call.is_some() {
                    self.kill().await;
                }
                return call;
            }
            assert!(Instant::now() < deadline, "neither held nor done");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Kills the process at every call of a kind's life.
async fn survives(kind: &str, account: &str) {
    let mut ground = Ground::start(kind, account).await;
    let case = prepare(kind, &ground.aws, &ground.harness, account).await;
    // A life without kills tells how much there should be.
    let before = inventory(&ground.aws).await;
    ground.create(&case).await;
    ground.harness.eventually(&case.place, is_ready).await;
    let created = inventory(&ground.aws).await;
    assert_ne!(created, before);
    ground.change(&case).await;
    if let Some((_, look)) = &case.change {
        let shown = async || look.is_shown(&ground.aws).await.then_some(());
        ground.harness.until("the change is shown", shown).await;
    }
    ground.harness.eventually(&case.place, is_ready).await;
    let changed = inventory(&ground.aws).await;
    ground.harness.delete(&case.place).await;
    ground.harness.gone(&case.place).await;
    assert_eq!(inventory(&ground.aws).await, before, "{kind}: left behind without any kill");

    let mut kills = 0;
    for moment in [Moment::BeforeCall, Moment::AfterWrite] {
        for number in 1.. {
            assert!(number < CALLS_MAX, "{kind}: a life takes too many calls");
            let mut any = false;
            let when =
                |step: &str, call: &str| format!("{kind} killed {moment:?} {number} of its {step} ({call})");

            let held = ground.proxy.hold(moment, number);
            ground.create(&case).await;
            let done =
                async |ground: &Ground| ground.harness.get(&case.place).await.as_ref().is_some_and(is_ready);
            let mut is_changed = false;
            if let Some(call) = ground.held(held, done).await {
                (any, kills) = (true, kills + 1);
                // Now and then the spec is another one before the next process comes.
                is_changed = number % 2 == 0;
                if is_changed {
                    ground.change(&case).await;
                }
                ground.restart().await;
                let expected = if is_changed { &changed } else { &created };
                ground.settled(&case, is_changed, expected, &when("create", &call)).await;
            }
            if let Some((_, look)) = case.change.as_ref().filter(|_| !is_changed) {
                let held = ground.proxy.hold(moment, number);
                ground.change(&case).await;
                let done =
                    async |ground: &Ground| look.is_shown(&ground.aws).await && ground.proxy.is_quiet();
                if let Some(call) = ground.held(held, done).await {
                    (any, kills) = (true, kills + 1);
                    ground.restart().await;
                    ground.settled(&case, true, &changed, &when("update", &call)).await;
                }
            }
            let held = ground.proxy.hold(moment, number);
            ground.harness.delete(&case.place).await;
            let done = async |ground: &Ground| ground.harness.get(&case.place).await.is_none();
            let killed = ground.held(held, done).await;
            if killed.is_some() {
                (any, kills) = (true, kills + 1);
                ground.restart().await;
            }
            ground.harness.gone(&case.place).await;
            let left = inventory(&ground.aws).await;
            assert_eq!(left, before, "{}", when("delete", killed.as_deref().unwrap_or("not killed")));
            if !any {
                break;
            }
        }
    }
    println!("{kind}: {kills} kills");
    assert!(kills >= 4, "{kind}: only {kills} kills");
}

macro_rules! survives_kills {
    ($($test:ident: $kind:literal on $account:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                survives($kind, $account).await;
            }
        )*

        #[test]
        fn every_kind_is_killed() {
            let killed = [$($kind),*];
            let kinds: Vec<&str> = KINDS.iter().map(|kinds| kinds[0]).collect();
            assert_eq!(killed.as_slice(), kinds);
        }
    };
}

survives_kills! {
    function_survives_kills: "Function" on "200000000001";
    alias_survives_kills: "Alias" on "200000000002";
    api_survives_kills: "API" on "200000000003";
    stage_survives_kills: "Stage" on "200000000004";
    route_survives_kills: "Route" on "200000000005";
    integration_survives_kills: "Integration" on "200000000006";
    domain_name_survives_kills: "DomainName" on "200000000007";
    api_mapping_survives_kills: "APIMapping" on "200000000008";
    certificate_survives_kills: "Certificate" on "200000000009";
    hosted_zone_survives_kills: "HostedZone" on "200000000010";
    record_set_survives_kills: "RecordSet" on "200000000011";
    bucket_survives_kills: "Bucket" on "200000000012";
    table_survives_kills: "Table" on "200000000013";
    role_survives_kills: "Role" on "200000000014";
    policy_survives_kills: "Policy" on "200000000015";
    api_gateway_domain_survives_kills: "APIGatewayDomain" on "200000000016";
    lambda_permission_survives_kills: "LambdaPermission" on "200000000017";
    static_site_survives_kills: "StaticSite" on "200000000018";
}
