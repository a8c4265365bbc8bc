//! APIGatewayDomain: a host name for an API, from its certificate to its DNS record.

mod api_mapping;
mod certificate;
mod dns;
mod domain_name;

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    kind::{Descriptor, Phase, Phases, READY, Workflow},
    step::{Cleaned, Step},
    work::Work,
};
use crate::{client::Result, fields::parse, kind::at};

const DOMAIN_NAME: (&str, &str) = ("apigatewayv2", "DomainName");
const API_MAPPING: (&str, &str) = ("apigatewayv2", "APIMapping");
const API: (&str, &str) = ("apigatewayv2", "API");
const CERTIFICATE: (&str, &str) = ("acm", "Certificate");

#[derive(Debug)]
pub(crate) struct ApiGatewayDomain;

/// Phases of a domain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DomainPhase {
    /// A certificate that covers the domain is issued.
    Certificate,
    /// API Gateway has the domain name, with that certificate.
    DomainName,
    /// The domain name leads to the API's stage.
    ApiMapping,
    /// DNS leads to the domain name.
    Dns,
}

impl Phases for DomainPhase {
    const ALL: &'static [Self] = &[Self::Certificate, Self::DomainName, Self::ApiMapping, Self::Dns];

    fn names(self) -> Phase {
        let phase = |condition, working, pending, done| Phase { condition, working, pending, done };
        match self {
            Self::Certificate => phase(
                "CertificateReady",
                "CERTIFICATE_RESOLVING",
                Some("CERTIFICATE_PENDING"),
                "CERTIFICATE_READY",
            ),
            Self::DomainName => phase("DomainNameReady", "DOMAIN_CREATING", None, "DOMAIN_READY"),
            Self::ApiMapping => phase("APIMappingReady", "MAPPING_CREATING", None, "MAPPING_READY"),
            Self::Dns => phase("DNSReady", "DNS_CREATING", None, READY),
        }
    }
}

static DESCRIPTOR: Descriptor = Descriptor {
    kind: "APIGatewayDomain",
    plural: "apigatewaydomains",
    short_names: &["agd"],
    spec: LazyLock::new(|| {
        parse(
            "domain!= certificateStrategy certificateArn apiRef!{name! namespace apiType} stage
             dnsConfig{ttl:i hostedZoneID overwrite:b}",
        )
    }),
    status: LazyLock::new(|| {
        parse(
            "certificateArn certificateStatus validationRecords[]{name type value hostedZoneID} domainNameEndpoint
             hostedZoneId apiMappingId dnsRecordName dnsRecord{type value ttl:i hostedZoneID changeID status}",
        )
    }),
    refine_schema: |spec| {
        let properties = &mut spec["properties"];
        properties["certificateStrategy"]["enum"] = json!(["discover", "create", "use-arn"]);
        properties["certificateStrategy"]["default"] = json!("discover");
        properties["stage"]["default"] = json!("$default");
        properties["apiRef"]["properties"]["apiType"]["enum"] = json!(["HTTP", "WEBSOCKET"]);
        properties["apiRef"]["properties"]["apiType"]["default"] = json!("HTTP");
        properties["dnsConfig"]["default"] = json!({});
        properties["dnsConfig"]["properties"]["ttl"]["default"] = json!(300);
        properties["dnsConfig"]["properties"]["ttl"]["minimum"] = json!(0);
        properties["domain"]["minLength"] = json!(1);
        properties["domain"]["maxLength"] = json!(253);
        properties["domain"]["pattern"] = json!(
            r"^(\*\.)?([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$"
        );
        spec["x-kubernetes-validations"] = json!([
            {"rule": "self.certificateStrategy == 'use-arn' ? has(self.certificateArn) : !has(self.certificateArn)",
                "message": "certificateArn is required with use-arn, and refused otherwise"},
            {"rule": "self.apiRef.apiType != 'WEBSOCKET' || self.stage != '$default'",
                "message": "a WEBSOCKET API has no stage $default"}]);
    },
    children: &[CERTIFICATE, DOMAIN_NAME, API_MAPPING],
    references: &[API],
    actions: &[
        "acm:ListCertificates",
        "acm:DescribeCertificate",
        "acm:DeleteCertificate",
        "acm:ListTagsForCertificate",
        "apigateway:GET",
        "apigateway:PATCH",
        "apigateway:DELETE",
        "route53:ListHostedZonesByName",
        "route53:GetHostedZone",
        "route53:ListResourceRecordSets",
        "route53:ChangeResourceRecordSets",
        "route53:GetChange",
    ],
    columns: &[("Domain", "string", ".spec.domain")],
};

#[async_trait]
impl Workflow for ApiGatewayDomain {
    type Phase = DomainPhase;

    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;

    /// The schema has rules for this too, which an API server without CEL does not know.
    fn check(spec: &Value) -> std::result::Result<(), String> {
        let text = |path: &str| at(spec, path).and_then(Value::as_str).unwrap_or_default();
        if text("certificateStrategy") == "use-arn" && text("certificateArn").is_empty() {
            return Err("missing field: certificateArn".to_owned());
        }
        if text("apiRef.apiType") == "WEBSOCKET" && text("stage") == "$default" {
            return Err("configuration error: a WEBSOCKET API has no stage $default".to_owned());
        }
        Ok(())
    }

    async fn run_phase(phase: DomainPhase, work: &mut Work<'_>) -> Result<Step> {
        match phase {
            DomainPhase::Certificate => certificate::run(work).await,
            DomainPhase::DomainName => domain_name::run(work).await,
            DomainPhase::ApiMapping => api_mapping::run(work).await,
            DomainPhase::Dns => dns::run(work).await,
        }
    }

    async fn clean_phase(phase: DomainPhase, work: &mut Work<'_>) -> Result<Cleaned> {
        match phase {
            DomainPhase::Certificate => certificate::clean(work).await,
            DomainPhase::DomainName => domain_name::clean(work).await,
            DomainPhase::ApiMapping => api_mapping::clean(work).await,
            DomainPhase::Dns => dns::clean(work).await,
        }
    }
}

/// Returns the domain of an object.
fn domain(work: &Work<'_>) -> String {
    work.spec("domain").unwrap_or_default().to_lowercase()
}
