//! The least-privilege policy, held against a simulator that evaluates it: enough for the lives of each kind, and no
//! action too many. Each action is taken away in turn: a call is denied, and granted again the life goes on to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use orlop_aws::{NAME, Observer, Settings, iam_action, iam_policy};
use orlop_controllers::runtime::Manager;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    cases::{KINDS, encode, is_ready},
    harness::{Harness, settings},
    inventory::elements,
    lives::{Life, lives_of},
    plays,
    proxy::Proxy,
    simulators::{Simulator, enforcing},
};

/// Actions that no call names: AWS asks for them when it acts on another call, which the simulator does not.
const ASKED_BY_AWS: &[(&str, &str)] = &[
    ("acm:ExportCertificate", "the simulator has no exports; moto has: `certificate_is_exported_…`"),
    ("dynamodb:CreateTableReplica", "UpdateTable with a new replica"),
    ("dynamodb:DeleteTableReplica", "UpdateTable without a replica"),
    ("ec2:DescribeSecurityGroups", "CreateFunction with vpcConfig"),
    ("ec2:DescribeSubnets", "CreateFunction with vpcConfig"),
    ("ec2:DescribeVpcs", "CreateFunction with vpcConfig, CreateHostedZone with a VPC"),
    ("ecr:BatchGetImage", "CreateFunction with an image"),
    ("ecr:GetDownloadUrlForLayer", "CreateFunction with an image"),
    ("iam:CreateServiceLinkedRole", "the first CreateDomainName of an account"),
    ("iam:PassRole", "CreateFunction, PutBucketReplication"),
    ("kms:CreateGrant", "CreateTable with a key"),
    ("kms:DescribeKey", "CreateTable with a key"),
    ("lambda:GetLayerVersion", "CreateFunction with layers"),
    ("s3:GetObject", "CreateFunction with s3Key, CreateDomainName with a trust store"),
    ("s3:GetObjectVersion", "CreateFunction with s3ObjectVersion"),
    ("s3:ListBucket", "HeadObject of a page that is missing: without it the answer is 403, not 404"),
    ("sts:AssumeRole", "a namespace with a role: `role_map_is_waited_for_and_chooses_the_account`"),
    ("sts:GetCallerIdentity", "AWS grants it to everybody"),
];

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Actions of a kind that something else grants too, as long as nobody takes that away.
const GRANTED_TWICE: &[(&str, &str, &str)] =
    &[("StaticSite", "s3:GetObject", "the bucket's policy lets everybody read its pages")];

struct Ground {
    aws: Simulator,
    proxy: Proxy,
    harness: Harness,
    policy: Value,
    /// Controllers of other kinds, with rights of their own.
    others: Option<JoinHandle<()>>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(others) = self.others.take() {
            others.abort();
        }
    }
}

/// Returns the policy of the kinds, as the simulator needs it.
fn policy_of(settings: &Settings, account: &str) -> Value {
    let mut policy = iam_policy(settings, account);
    for statement in policy["Statement"].as_array_mut().expect("statements") {
        // The simulator takes some resources of these for `*`, such as that of CreateFunction. AWS knows their ARNs.
        if ["Lambda", "Dynamodb"].iter().any(|sid| statement["Sid"] == *sid) {
            statement["Resource"] = json!("*");
        }
    }
    policy
}

impl Ground {
    /// Starts the controllers of a kind as a user that has its policy and nothing else. Children of the Bridge are left
    /// to other controllers, which have all rights.
    async fn start(kind: &str, account: &str) -> Self {
        let all = KINDS.iter().find(|kinds| kinds[0] == kind).expect("a kind with a life");
        let aws = enforcing(account);
        let (code, said) =
            aws.query("iam", "Action=CreateUser&UserName=controllers&Version=2010-05-08").await;
        assert_eq!(code, 200, "{said}");
        let (_, key) =
            aws.query("iam", "Action=CreateAccessKey&UserName=controllers&Version=2010-05-08").await;
        let part = |name: &str| elements(&key, name).first().copied().unwrap_or_default().to_owned();
        let variables = BTreeMap::from([
            ("AWS_ACCESS_KEY_ID".to_owned(), part("AccessKeyId")),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), part("SecretAccessKey")),
            ("AWS_EC2_METADATA_DISABLED".to_owned(), "true".to_owned()),
        ]);
        let proxy = Proxy::start(&aws.address).await;
        let kinds = vec![kind.to_owned()];
        let settings = Settings { kinds, environment: Some(variables), ..settings(&proxy.address) };
        let policy = policy_of(&settings, account);
        let harness = Harness::start(settings).await;
        let mut ground = Self { aws, proxy, harness, policy: policy.clone(), others: None };
        if all.len() > 1 {
            ground.others = Some(ground.start_others(&all[1..], account).await);
        }
        ground.grant(&policy).await;
        ground
    }

    /// Starts controllers of other kinds, as the root user.
    async fn start_others(&self, kinds: &[&str], account: &str) -> JoinHandle<()> {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let settings = Settings { kinds, ..crate::harness::of_account(&self.aws.address, account) };
        let client = orlop_test::for_controllers(self.harness.server.client());
        let (mut manager, observer) = (Manager::new(client), Observer::default());
        let seen = observer.clone();
        manager.register(NAME, move |context| orlop_aws::run(context, settings.clone(), observer.clone()));
        let task = tokio::spawn(manager.run(std::future::pending()));
        self.harness.until("the others are ready", async || seen.is_ready().then_some(())).await;
        task
    }

    /// Gives the user this policy.
    async fn grant(&self, policy: &Value) {
        let granted = actions(policy);
        let mut simulated = policy.clone();
        for statement in simulated["Statement"].as_array_mut().into_iter().flatten() {
            // The simulator knows few of Lambda's actions by their names. The proxy judges those.
            if statement["Sid"] == "Lambda" {
                statement["Action"] = json!(["lambda:*"]);
            }
        }
        self.proxy.grant(granted, &self.aws.key);
        let document = encode(&simulated.to_string());
        let query = format!(
            "Action=PutUserPolicy&UserName=controllers&PolicyName=least&PolicyDocument={document}&Version=2010-05-08"
        );
        let (code, said) = self.aws.query("iam", &query).await;
        assert_eq!(code, 200, "{said}");
    }

    /// Actions of the calls made so far, whatever came of them.
    fn called(&self) -> BTreeSet<String> {
        let calls = self.harness.observer.calls();
        let mut called: BTreeSet<String> =
            calls.keys().filter_map(|(service, operation, _)| iam_action(service, operation)).collect();
        let made = self.proxy.made();
        let gateway = made.iter().filter_map(|call| call.split_once(" /v2/"));
        called.extend(gateway.map(|(method, _)| format!("apigateway:{method}")));
        called
    }

    /// The number of calls that were denied so far.
    fn denied(&self) -> u64 {
        let calls = self.harness.observer.calls();
        let denied = calls.iter().filter(|((_, _, outcome), _)| outcome.contains("AccessDenied"));
        denied.map(|(_, count)| count).sum()
    }

    /// Lives a life, until it is over or a call is denied. True if one was.
    async fn live(&self, life: &Life) -> bool {
        let (harness, case) = (&self.harness, &life.case);
        (life.before)(&self.aws, harness).await;
        let before = self.denied();
        let is_denied = || self.denied() > before;
        self.proxy.clear();
        for (matching, fault, times) in &life.faults {
            self.proxy.inject(matching, fault.clone(), *times);
        }
        harness.apply(&case.place, case.kind, json!({}), case.spec.clone()).await;
        let done = async || harness.get(&case.place).await.is_some_and(|object| is_ready(&object));
        self.reach(life, "Ready", async || done().await || is_denied()).await;
        if let Some(change) = life.change.as_ref().filter(|_| !is_denied()) {
            let calls = self.proxy.calls();
            harness.patch(&case.place, json!({"spec": change})).await;
            let settled = || self.proxy.calls() > calls && self.proxy.is_quiet();
            let done = async || settled() && done().await;
            self.reach(life, "changed", async || done().await || is_denied()).await;
        }
        if !is_denied() {
            harness.delete(&case.place).await;
            let done = async || harness.get(&case.place).await.is_none();
            self.reach(life, "gone", async || done().await || is_denied()).await;
        }
        is_denied()
    }

    /// Waits for a point of a life.
    async fn reach(&self, life: &Life, what: &str, mut is_there: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_there().await {
            let object = self.harness.get(&life.case.place).await.unwrap_or_default();
            let (kind, status) = (life.case.kind, &object["status"]);
            assert!(Instant::now() < deadline, "{kind} is neither {what} nor denied: {status:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends a life that was denied something, with all rights again.
    async fn end(&self, life: &Life) {
        let place = &life.case.place;
        let object = self.harness.get(place).await;
        if object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_null()) {
            self.harness.eventually(place, is_ready).await;
            self.harness.delete(place).await;
        }
        self.harness.gone(place).await;
    }
}

/// Returns the actions of a policy.
fn actions(policy: &Value) -> BTreeSet<String> {
    let statements = policy["Statement"].as_array().into_iter().flatten();
    let of = |action: &Value| match action {
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        one => vec![one.as_str().unwrap_or_default().to_owned()],
    };
    statements.flat_map(|statement| of(&statement["Action"])).collect()
}

/// Returns a policy without an action.
fn without(policy: &Value, action: &str) -> Value {
    let mut policy = policy.clone();
    for statement in policy["Statement"].as_array_mut().into_iter().flatten() {
        if let Some(all) = statement["Action"].as_array_mut() {
            all.retain(|one| one != action);
        }
    }
    if let Some(all) = policy["Statement"].as_array_mut() {
        all.retain(|statement| statement["Action"].as_array().is_none_or(|actions| !actions.is_empty()));
    }
    policy
}

/// Lives all lives of a kind with its policy, then with each action of it missing.
async fn needs_every_action(kind: &str, account: &str) {
    let ground = Ground::start(kind, account).await;
    let lives = lives_of(kind, &ground.aws, &ground.harness, account).await;
    let mut by_life = Vec::new();
    let mut seen = BTreeSet::new();
    for life in &lives {
        let denied = ground.live(life).await;
        assert!(!denied, "{kind}: the policy is not enough: {:?}", ground.harness.observer.calls());
        let called = ground.called();
        by_life.push((life, called.difference(&seen).cloned().collect::<BTreeSet<_>>()));
        seen = called;
    }
    let granted = actions(&iam_policy(&ground.harness.settings, account));
    let missing: Vec<_> = seen.difference(&granted).collect();
    assert!(missing.is_empty(), "{kind}: called and not granted: {missing:?}");
    let asked: BTreeSet<&str> = ASKED_BY_AWS.iter().map(|(action, _)| *action).collect();
    let unused: BTreeSet<&str> = granted.difference(&seen).map(String::as_str).collect();
    let unused: Vec<_> = unused.difference(&asked).collect();
    assert!(unused.is_empty(), "{kind}: granted and never called: {unused:?}");
    let free = ["sts:GetCallerIdentity", "sts:AssumeRole"];
    let twice = |action: &str| GRANTED_TWICE.iter().any(|(of, known, _)| *of == kind && *known == action);
    for action in granted.intersection(&seen).filter(|action| !free.contains(&action.as_str())) {
        if twice(action) {
            continue;
        }
        let (life, _) = by_life.iter().find(|(_, called)| called.contains(action)).expect("a life");
        ground.grant(&without(&ground.policy, action)).await;
        assert!(ground.live(life).await, "{kind} does without {action}");
        ground.grant(&ground.policy).await;
        ground.end(life).await;
    }
}

macro_rules! needs_every_action {
    ($($test:ident: $kind:literal on $account:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                needs_every_action($kind, $account).await;
            }
        )*

        #[test]
        fn every_kind_is_denied_every_action() {
            let denied = [$($kind),*];
            let kinds: Vec<&str> = KINDS.iter().map(|kinds| kinds[0]).collect();
            assert_eq!(denied.as_slice(), kinds);
        }
    };
}

needs_every_action! {
    function_needs_every_action: "Function" on "510000000001";
    alias_needs_every_action: "Alias" on "510000000002";
    api_needs_every_action: "API" on "510000000003";
    stage_needs_every_action: "Stage" on "510000000004";
    route_needs_every_action: "Route" on "510000000005";
    integration_needs_every_action: "Integration" on "510000000006";
    domain_name_needs_every_action: "DomainName" on "510000000007";
    api_mapping_needs_every_action: "APIMapping" on "510000000008";
    certificate_needs_every_action: "Certificate" on "510000000009";
    hosted_zone_needs_every_action: "HostedZone" on "510000000010";
    record_set_needs_every_action: "RecordSet" on "510000000011";
    bucket_needs_every_action: "Bucket" on "510000000012";
    table_needs_every_action: "Table" on "510000000013";
    role_needs_every_action: "Role" on "510000000014";
    policy_needs_every_action: "Policy" on "510000000015";
    api_gateway_domain_needs_every_action: "APIGatewayDomain" on "510000000016";
    lambda_permission_needs_every_action: "LambdaPermission" on "510000000017";
    static_site_needs_every_action: "StaticSite" on "510000000018";
}

#[test]
fn policy_of_all_kinds_fits_a_managed_policy() {
    let policy = iam_policy(&Settings::default(), "123456789012").to_string();
    assert!(policy.len() < 6_144, "{} characters", policy.len());
}

/// Actions that AWS asks for by itself are granted to somebody: a leftover of the list would hide an action too many.
#[test]
fn actions_that_aws_asks_for_are_all_granted() {
    let granted = actions(&iam_policy(&Settings { carm: true, ..Settings::default() }, "123456789012"));
    for (action, why) in ASKED_BY_AWS {
        assert!(granted.contains(*action), "{action} ({why})");
    }
}

#[test]
fn actions_of_lambda_are_named_as_aws_names_them() {
    let functions = "/2015-03-31/functions";
    for (method, path, action) in [
        ("POST", functions.to_owned(), "lambda:CreateFunction"),
        ("GET", format!("{functions}/f"), "lambda:GetFunction"),
        ("GET", format!("{functions}/f/policy?Qualifier=a"), "lambda:GetPolicy"),
        ("DELETE", format!("{functions}/f/policy/id?Qualifier=a"), "lambda:RemovePermission"),
        ("PUT", "/v2/apis?failOnWarnings=false".to_owned(), "apigateway:PUT"),
        ("DELETE", "/bucket?metrics=&id=all".to_owned(), "s3:PutMetricsConfiguration"),
    ] {
        assert_eq!(plays::action_of(method, &path).as_deref(), Some(action));
    }
}
